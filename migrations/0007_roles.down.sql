drop view public.v_governance_candidate;
drop view public.v_governance_group;
drop view public.v_governance_worker;
drop view public.v_governance_dead_letter_open;
drop view public.v_governance_source;
revoke all on public.event_outbox, public.event_pending, public.iu_route_dead_letter, public.queue_heartbeat,
    public.system_issues, public.dot_config, public.event_type_registry, public.registry_changelog
    from gov_handoff_owner, gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
do $$
declare
    s record;
begin
    for s in
        select distinct d.objid::regclass as seq
          from pg_depend d join pg_class c on c.oid = d.objid and c.relkind = 'S'
         where d.refobjid in ('public.registry_changelog'::regclass, 'public.system_issues'::regclass)
    loop
        execute format('revoke usage on sequence %s from gov_handoff_owner', s.seq);
    end loop;
end
$$;
revoke select on public.gov_schema_version from gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
revoke all on gov_handoff.batches, gov_handoff.definitions from gov_handoff_owner;
revoke usage on schema public, gov_handoff from gov_handoff_owner, gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
