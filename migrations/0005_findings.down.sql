drop function public.gov_audit_note, public.gov_audit_write, public.gov_finding_sustain, public.gov_finding_resolve,
    public.gov_finding_raise, public.gov_finding_emit, public.gov_severity_rank;
