select (select count(*) from public.event_pending where event_domain = 'governance' and processed_at is null
           and event_type_hint is distinct from 'governance.handoff.retry') as waiting,
       (select count(*) from public.v_governance_retry) as retrying,
       (select count(*) from public.v_governance_dead_letter_open) as dead_letters,
       (select count(*) from public.gov_candidate_group where dirty) as dirty_groups,
       (select count(*) from public.system_issues where source_system = 'gov-handoff' and resolved_at is null) as open_findings
