-- What the selftest cannot do without, each as a question.
select has_database_privilege(current_database(), 'create') as may_create,
       to_regprocedure('gov_handoff.gov_selftest_clean()') is not null as migrated,
       case when to_regprocedure('gov_handoff.gov_selftest_clean()') is null then false
            else has_function_privilege('gov_handoff.gov_selftest_clean()', 'execute')
             and has_function_privilege('gov_handoff.gov_source_put(text, text, jsonb, bigint, bigint)', 'execute')
             and has_function_privilege('gov_handoff.gov_lease_claim(text, text, interval)', 'execute') end as may_run,
       current_setting('max_prepared_transactions')::int > 0 as may_prepare,
       current_database()::text as database,
       current_user::text as role
