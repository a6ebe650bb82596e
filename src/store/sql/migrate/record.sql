insert into public.gov_schema_version (version, name, checksum, created) values ($1, $2, $3, $4)
