drop function gov_handoff.gov_notices_retire, gov_handoff.gov_pending_retire, gov_handoff.gov_outbox_retire, gov_handoff.gov_audit_finish,
    gov_handoff.gov_audit_checkpoint, gov_handoff.gov_audit_summary, gov_handoff.gov_audit_gain, gov_handoff.gov_certificate_put, gov_handoff.gov_key_reused;
revoke delete on public.event_outbox from gov_handoff_owner;
drop table public.gov_certificate_log;
drop table public.gov_audit_name;
drop table public.gov_reused_key;
drop table public.gov_retired_total;
drop table public.gov_retired_signal;
drop table public.gov_retired_range;
