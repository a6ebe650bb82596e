drop function public.gov_outbox_retire(text, timestamptz, int);
drop function public.gov_audit_checkpoint(text, text, bigint, text, text, jsonb);
drop function public.gov_certificate_put(text, text, bigint, text, text, jsonb, boolean);
revoke delete on public.event_outbox from gov_handoff_owner;
drop table public.gov_retired_signal;
drop table public.gov_retired_range;
