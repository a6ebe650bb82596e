-- By name alone, here and below: the way back stays true when a gate changes its arguments.
drop function public.gov_handoff_probe, public.gov_handoff_mark_new, public.gov_handoff_apply_one, public.gov_handoff_apply,
    public.gov_watermark_ahead, public.gov_handoff_identity;
