-- The login roles of compose.yaml. A superuser runs this once in the new database `registry`.
--
--   registry_owner   owns the database: it migrates, grants, and makes the publication
--   gov_handoff      the daemon: it streams, and writes by the gates alone (its grant is in grants.sql)
--   registry_operator  an operator: types, sources, dead letters (its grant is in grants.sql)

create role registry_owner login createrole password :'owner_password';
create role gov_handoff login replication password :'daemon_password';
create role registry_operator login password :'operator_password';
alter database registry owner to registry_owner;
-- It makes these roles members of the roles that `migrate` creates.
revoke connect on database registry from public;
grant connect on database registry to gov_handoff, registry_operator;
