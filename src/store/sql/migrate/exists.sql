select to_regclass('public.' || quote_ident($1)) is not null
