-- What metrics are read from: totals that outlive certificates and daemons, and what waits, at a bounded cost.

create view public.v_governance_repair as
select worker_name, source_name, reason, repaired from public.gov_repair_total;

create view public.v_governance_captured as select event_type, waiting from gov_handoff.gov_captured();

grant select, insert, update on public.gov_repair_total to gov_handoff_owner;
grant select on public.v_governance_repair, public.v_governance_captured
    to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
