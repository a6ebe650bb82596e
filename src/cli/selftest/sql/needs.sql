-- What the selftest cannot do without, each as a question. The gates are looked up in the catalogue: naming one is an error for a
-- role that may not use their schema.
with gate as (
    select p.proname, has_function_privilege(p.oid, 'execute') and has_schema_privilege(n.oid, 'usage') as allowed
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace
     where n.nspname = 'gov_handoff' and p.proname in ('gov_selftest_clean', 'gov_source_put', 'gov_lease_claim')
)
select has_database_privilege(current_database(), 'create') as may_create,
       exists (select from gate where proname = 'gov_selftest_clean') as migrated,
       coalesce((select bool_and(allowed) from gate), false) as may_run,
       current_setting('max_prepared_transactions')::int > 0 as may_prepare,
       current_database()::text as database,
       current_user::text as role
