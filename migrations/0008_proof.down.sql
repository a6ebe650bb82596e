drop function public.gov_notices_retire, public.gov_pending_retire, public.gov_outbox_retire, public.gov_audit_finish,
    public.gov_audit_checkpoint, public.gov_certificate_put;
revoke delete on public.event_outbox from gov_handoff_owner;
drop table public.gov_certificate_log;
drop table public.gov_audit_name;
drop table public.gov_retired_signal;
drop table public.gov_retired_range;
