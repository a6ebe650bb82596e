select count(*) from public.v_governance_dead_letter_open
