drop function public.gov_audit_retire(timestamptz, int);
revoke select (id, entity_type, source_system, "timestamp"), delete on public.registry_changelog from gov_handoff_owner;
revoke select on public.gov_schema_version from gov_handoff_worker, gov_handoff_operator, gov_handoff_observer;
