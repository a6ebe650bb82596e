select event_type, waiting from public.v_governance_captured order by event_type
