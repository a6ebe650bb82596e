select event_type, count(*) as n
  from public.event_outbox
 where event_domain = 'governance'
 group by event_type
 order by event_type
