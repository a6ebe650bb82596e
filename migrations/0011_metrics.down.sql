-- The gate that was replaced goes with 0005; nothing calls it in between.
drop view public.v_governance_captured;
drop view public.v_governance_repair;
drop table public.gov_repair_total;
