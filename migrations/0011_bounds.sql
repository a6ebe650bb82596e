-- What we leave behind in tables of others, and for how long; and who may see which steps are in force.

-- Audit rows -------------------------------------------------------------------------------------------------------

-- Removes up to p_limit of our own audit rows from the changelog: those older than p_before, and nobody else's. There is one
-- per source and audit interval with new rows, one per certificate in the history, one per dead letter and decision.
--
-- The changelog is also a source that is read, and rows that vanish from a source are a finding. So only what every reader
-- of the table leaves out by definition goes, once its id has left the open ranges; it is counted in the same commit among
-- the ids that have no row; and the last row of the table stays, because ids that seem to go back are a finding as well.
create function public.gov_audit_retire(p_before timestamptz, p_limit int)
returns bigint language plpgsql security definer
set search_path = pg_catalog, public, pg_temp
as $$
declare
    v_n bigint;
begin
    with readers as materialized (
        select c.worker_name, c.source_name, f.worker_name is not null as certified,
               coalesce(c.metadata -> 'exclude' @> '[{"column": "source_system", "equals": "gov-handoff"}]', false) as leaves_out
          from gov_worker_cursor c
          left join gov_worker_frontier f on f.worker_name = c.worker_name and f.source_name = c.source_name
         where c.metadata ? 'id' and coalesce(c.metadata ->> 'schema', 'public') = 'public'
           and coalesce(c.metadata ->> 'table', c.source_name) = 'registry_changelog'
    ), due as (
        select r.id
          from registry_changelog r
         where r.source_system = 'gov-handoff' and r.entity_type = 'governance_handoff'
           and r."timestamp" < p_before at time zone 'UTC'
           and r.id < (select max(m.id) from registry_changelog m)
           and not exists (select from readers a
                            where not a.certified or not a.leaves_out
                               or exists (select from gov_worker_gap g
                                           where g.worker_name = a.worker_name and g.source_name = a.source_name
                                             and r.id between g.lo and g.hi))
         order by r.id limit p_limit
    ), gone as (
        delete from registry_changelog r using due where r.id = due.id returning r.id
    )
    select count(*) into v_n from gone;
    update gov_worker_frontier f set certified_away = f.certified_away + v_n
      from gov_worker_cursor c
     where c.worker_name = f.worker_name and c.source_name = f.source_name and v_n > 0
       and c.metadata ? 'id' and coalesce(c.metadata ->> 'schema', 'public') = 'public'
       and coalesce(c.metadata ->> 'table', c.source_name) = 'registry_changelog';
    return v_n;
exception when others then
    -- A live table may have rules of its own against it; they stand.
    perform gov_finding_raise('audit_row_refused', 'audit_row_refused:retention', 'warning',
        jsonb_build_object('action', 'retire', 'sqlstate', sqlstate));
    return 0;
end
$$;
alter function public.gov_audit_retire(timestamptz, int) owner to gov_handoff_owner;
revoke all on function public.gov_audit_retire(timestamptz, int) from public;
grant execute on function public.gov_audit_retire(timestamptz, int) to gov_handoff_operator;
grant select (id, entity_type, source_system, "timestamp"), delete on public.registry_changelog to gov_handoff_owner;

-- Steps ------------------------------------------------------------------------------------------------------------

-- `doctor` compares them with those of its own build.
grant select on public.gov_schema_version to gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
