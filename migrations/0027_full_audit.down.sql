drop function gov_handoff.gov_candidates_revalidate;
drop view public.v_gov_full_audit;
