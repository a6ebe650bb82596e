-- The limit of the poll measure: what a good engineer would write without a daemon. One connection, batches of 5,000 by id,
-- one commit each, the same rows in the same tables under the same identities, the feed's included. It fences nothing, keeps no ranges, tells
-- no new row from an old one when it marks, and could not be left alone; it is what the server can do.
create procedure bench_plain(p_rows int) language plpgsql as $$
declare
    v_lo int := 0;
    v_n int;
    v_seen bigint;
    v_pos bigint;
begin
    while v_lo < p_rows loop
        select coalesce(max(pos), 0) into v_pos from event_feed;
        with recorded as (
        insert into event_outbox (id, event_domain, event_type, event_stream, delivery_lane, event_subject_table,
            event_subject_ref, canonical_address, actor_ref, source_system, payload_classification, safe_payload, occurred_at)
        select (p.head || to_hex(p.low | (('x' || encode(substr(sha256(convert_to(
                   '14:birth_registry' || length(b.id::text) || ':' || b.id || '30:governance.handoff.object_born', 'UTF8')), 1, 8), 'hex')
                   )::bit(64)::bigint & 4398046511103)))::uuid,
               'governance', 'governance.handoff.object_born', 'birth', 'immediate', 'birth_registry',
               (p.head || to_hex(p.low | (('x' || encode(substr(sha256(convert_to(
                   '14:birth_registry' || length(b.id::text) || ':' || b.id, 'UTF8')), 1, 8), 'hex')
                   )::bit(64)::bigint & 4398046511103)))::uuid,
               b.address, b.actor_ref, b.source_system, 'safe_metadata',
               jsonb_build_object('object_type', b.collection_name, 'object_ref', b.object_ref,
                   'canonical_address', b.address,
                   'group_key', 'object_class=' || b.collection_name || '/source_registry=birth_registry',
                   'change_kind', 'object_born', 'source', 'birth_registry', 'source_key', b.id::text,
                   'occurred_at', b.born_at, 'source_system', b.source_system, 'actor_ref', b.actor_ref,
                   'captured_by', 'poll'),
               b.born_at
          from (select t.id, t.born_at, t.collection_name, t.actor_ref, t.source_system,
                       t.collection_name || ':' || t.entity_code as object_ref,
                       coalesce(t.canonical_address, t.collection_name || ':' || t.entity_code) as address,
                       t.id::bigint # (-9223372036854775808)::bigint as k
                  from birth_registry t where t.id > v_lo and t.id <= v_lo + 5000) b,
               -- The source's tag is a constant to whoever writes such a statement by hand.
               lateral (select '{tag}' || lpad(to_hex((b.k >> 32) & 4294967295), 8, '0') || '8'
                                   || lpad(to_hex((b.k >> 20) & 4095), 3, '0') as head,
                               (-9223372036854775808)::bigint | ((b.k & 1048575) << 42) as low) p
         order by b.id
        on conflict (event_domain, event_type, event_subject_table, event_subject_ref)
            where event_subject_ref is not null do nothing
        returning id, event_domain, event_type, event_stream, event_severity, event_subject_table, event_subject_ref, actor_ref
        )
        insert into event_feed (pos, event_id, event_domain, event_type, event_stream, event_severity, event_subject_table,
            event_subject_ref, actor_ref)
        select v_pos + row_number() over (), id, event_domain, event_type, event_stream, event_severity, event_subject_table,
               event_subject_ref, actor_ref
          from recorded;
        get diagnostics v_seen = row_count;

        insert into gov_candidate_group as c (group_key, dims, dirty_reason, dirtied_at, changes, last_occurred_at, last_kind)
        select 'object_class=' || collection_name || '/source_registry=birth_registry',
               jsonb_build_object('object_class', collection_name, 'source_registry', 'birth_registry'),
               'governance.handoff.object_born', now(), count(*), max(born_at), 'governance.handoff.object_born'
          from birth_registry where id > v_lo and id <= v_lo + 5000
         group by collection_name order by 1
        on conflict (group_key) do update
            set dirty = true, dirty_reason = excluded.dirty_reason, dirtied_at = excluded.dirtied_at,
                generation = c.generation + 1, changes = c.changes + excluded.changes,
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

        update gov_worker_cursor c
           set events_seen = c.events_seen + v_seen, attempts_written = c.attempts_written + v_seen,
               last_run_at = clock_timestamp(), updated_at = clock_timestamp(),
               last_watermark_ts = m.born_at, last_watermark_id = m.id::text
          from (select born_at, id from birth_registry where id > v_lo and id <= v_lo + 5000 order by id desc limit 1) m
         where c.source_name = 'birth_registry';
        commit;
        v_lo := v_lo + 5000;
    end loop;
end
$$;
