drop view public.v_governance_captured;
drop view public.v_governance_repair;
revoke all on public.gov_repair_total from gov_handoff_owner;
