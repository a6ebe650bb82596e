-- Every subscription, and how many actors it reaches: the recipient and its members.
select s.recipient_ref, s.event_domain, s.event_type, s.event_stream, s.scope_subject_table, coalesce(s.scope_filter, '{}') as scope_filter,
       s.mute, (select count(distinct g.actor_ref) from public.v_event_actor_group g
                 where g.group_ref = s.recipient_ref and g.actor_ref <> s.recipient_ref) as members
  from public.event_subscription s
 order by s.recipient_ref, s.event_domain nulls last, s.event_type nulls last, s.event_stream nulls last
