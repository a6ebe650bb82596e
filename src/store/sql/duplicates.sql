-- Two signals of one kind about one row, in whatever tables they are.
select count(*)
  from (select s.event_type, s.ref
          from (select o.event_type, o.event_subject_ref as ref from public.event_outbox o
                 where o.event_domain = 'governance' and o.event_subject_table = $1 and o.event_subject_ref is not null
                 union all
                select p.event_type_hint, p.entity_ref from public.event_pending p
                 where p.event_domain = 'governance' and p.entity_table = $1 and p.entity_ref is not null
                   and p.processed_at is null) s
         group by s.event_type, s.ref
        having count(*) > 1) d
