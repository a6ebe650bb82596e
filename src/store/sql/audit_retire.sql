select public.gov_audit_retire($1::text::timestamptz, $2)
