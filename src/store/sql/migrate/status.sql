select version, created from public.gov_schema_version order by version
