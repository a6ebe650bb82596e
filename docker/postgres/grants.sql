-- What the login roles of compose.yaml may do. The owner runs this after `migrate`, after replication/roles.sql and
-- replication/publication.sql. It may run again.

grant gov_handoff_worker to gov_handoff;
grant gov_handoff_operator, gov_handoff_observer to registry_operator;
