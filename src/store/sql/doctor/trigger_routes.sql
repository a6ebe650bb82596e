-- Triggers of others whose function writes to the queue, and that no row of iu_sql_event_route names. A function is judged by
-- its text: one that writes by dynamic SQL, or through another function that is none of the known emitters, is not seen.
select t.tgrelid::regclass::text as table, t.tgname::text as trigger, p.oid::regproc::text as function,
       case when t.tgtype & 4 <> 0 then 'insert' when t.tgtype & 8 <> 0 then 'delete' else 'update' end as event
  from pg_trigger t
  join pg_proc p on p.oid = t.tgfoid
  join pg_class k on k.oid = t.tgrelid
 where not t.tgisinternal
   and p.pronamespace <> coalesce(to_regnamespace('gov_handoff'), 0)
   and p.prosrc ~* ('(insert\s+into|update|delete\s+from)\s+(only\s+)?("?public"?\s*\.\s*)?"?'
       '(event_outbox|event_pending|event_read|event_subscription|event_type_registry|job_queue|iu_route_dead_letter|queue_heartbeat)\M'
       '|\m(fn_event_emit|fn_event_emit_many|fn_job_enqueue|fn_job_enqueue_many|fn_iu_emit_\w+)\M')
   and not exists (
       select from public.iu_sql_event_route r
        where r.source_object in (k.relname, t.tgrelid::regclass::text, k.relnamespace::regnamespace::text || '.' || k.relname,
                                  t.tgname, p.proname, p.oid::regproc::text))
 order by 1, 2
