drop view public.v_gov_worker;
drop function gov_handoff.gov_worker_checkpoint, gov_handoff.gov_worker_page, gov_handoff.gov_worker_summary,
    gov_handoff.gov_worker_pause;
drop table public.gov_worker_control;
