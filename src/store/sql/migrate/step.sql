select checksum from public.gov_schema_version where version = $1
