-- The first certificate of a source that is complete through a later transaction than $3, of those that are kept. At most
-- the latest thousand of a source are kept, and the latest of each worker.
select c.kind, c.taken_at, c.frontier::text::bigint as frontier, c.lsn,
       c.taken_at = (select min(k.taken_at) from public.v_governance_certificate_history k where k.source_name = $2)
       and (select count(*) from public.v_governance_certificate_history k where k.source_name = $2) >= 1000 as may_be_later
  from (select h.certificate ->> 'kind' as kind, (h.certificate ->> 'taken_at')::timestamptz as taken_at,
               (h.certificate ->> 'frontier')::numeric as frontier, h.certificate ->> 'lsn' as lsn,
               h.certificate ->> 'system_identifier' as system_identifier, h.certificate ->> 'since' as since
          from (select x.certificate from public.v_governance_certificate_history x where x.source_name = $2
                 union all
                select y.certificate from public.v_governance_certificate y
                 where y.worker_name = $1 and y.source_name = $2) h) c
 where c.frontier > $3::bigint and c.since is null
   and c.system_identifier = (select s.system_identifier::text from pg_control_system() s)
 order by c.taken_at
 limit 1
