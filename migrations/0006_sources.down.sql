drop function public.gov_frontier_advance, public.gov_stream_confirm, public.gov_stream_bind, public.gov_gap_cool,
    public.gov_gap_replace, public.gov_source_remove, public.gov_source_put, public.gov_source_open,
    public.gov_source_bind, public.gov_handoff_drain, public.gov_handoff_drain_some, public.gov_handoff_drain_refused,
    public.gov_type_set_active;
