-- The role that the daemon of compose.yaml works as: a member of gov_handoff_worker that may stream, and nothing else. Run after
-- replication/roles.sql with the password in the variable `password`.
select 'create role gov_handoff login replication in role gov_handoff_worker'
 where not exists (select from pg_roles where rolname = 'gov_handoff') \gexec
alter role gov_handoff password :'password';
