-- The limit of the sweep measure: the marks of a backlog as a good engineer would write them by hand. One connection, batches
-- of 5,000 by id, one commit each. It fences nothing and keeps no place that a crash could resume from but its last id.
create procedure bench_sweep(p_rows int) language plpgsql as $$
declare
    v_lo int := 0;
begin
    while v_lo < p_rows loop
        insert into gov_candidate_group as c (group_key, dims, dirty_reason, dirtied_at, changes, last_occurred_at, last_kind)
        select 'object_class=' || collection_name || '/source_registry=birth_registry',
               jsonb_build_object('object_class', collection_name, 'source_registry', 'birth_registry'),
               'governance.handoff.object_born', now(), 0, max(born_at), 'governance.handoff.object_born'
          from birth_registry where id > v_lo and id <= v_lo + 5000
         group by collection_name order by 1
        on conflict (group_key) do update
            set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                generation = c.generation + 1,
                last_occurred_at = greatest(c.last_occurred_at, excluded.last_occurred_at), last_kind = excluded.last_kind;

        insert into gov_candidate_state as c (candidate_key, ruleset_version, object_type, group_key, group_mark,
            dirty_reason, dirtied_at, last_occurred_at, last_kind, source_name, source_key, born_key)
        select distinct on (address collate "C") address, 1, collection_name, b.group_key, g.generation,
               'governance.handoff.object_born', now(), born_at, 'governance.handoff.object_born', 'birth_registry', b.id::text,
               'birth_registry:' || b.id
          from (select coalesce(t.canonical_address, t.collection_name || ':' || t.entity_code) as address,
                       'object_class=' || t.collection_name || '/source_registry=birth_registry' as group_key,
                       t.collection_name, t.born_at, t.id
                  from birth_registry t where t.id > v_lo and t.id <= v_lo + 5000) b
          join gov_candidate_group g on g.group_key = b.group_key
         order by address collate "C", born_at desc
        on conflict (candidate_key) do update
            set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                generation = c.generation + 1, last_occurred_at = greatest(c.last_occurred_at, excluded.last_occurred_at),
                last_kind = excluded.last_kind, source_name = excluded.source_name, source_key = excluded.source_key,
                group_mark = excluded.group_mark;

        insert into gov_worker_cursor as c (worker_name, source_name, events_seen, last_run_at)
        values ('plain', 'birth_registry', 5000, clock_timestamp())
        on conflict (worker_name, source_name) do update
            set events_seen = c.events_seen + 5000, last_run_at = clock_timestamp(), updated_at = clock_timestamp();
        commit;
        v_lo := v_lo + 5000;
    end loop;
end
$$;
