drop table public.gov_schema_version
