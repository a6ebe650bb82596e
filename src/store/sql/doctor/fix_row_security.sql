alter role {role} bypassrls;
