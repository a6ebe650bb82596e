-- Who an event is for, and who muted it.
select r.actor_ref, r.via, r.muted,
       (array['addressed', 'exact', 'domain_wildcard', 'stream_wildcard', 'domain_only', 'any_domain', 'broadcast'])[r.step + 1] as step_name
  from gov_handoff.gov_event_resolution($1) r
