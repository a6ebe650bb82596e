-- Every kind of handoff that a signal may have, under the definition in force or an earlier one.
select r.event_type
  from public.event_type_registry r
 where r.event_domain = 'governance' and r.event_type like 'governance.handoff.%'
