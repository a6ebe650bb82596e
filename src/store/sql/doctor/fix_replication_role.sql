alter role {role} replication;
