-- The subjects whose key is noted as reused.
select k.subject from public.gov_reused_key k where k.subject = any ($1::uuid[])
