select version, checksum from public.gov_schema_version order by version
