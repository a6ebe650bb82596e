-- After the publication, never before: a slot cannot use a publication that is younger than itself. From PostgreSQL 17
-- on, a standby can keep the slot, so that the stream continues after a failover.
do $slot$
begin
    execute format('select pg_create_logical_replication_slot(%L, ''pgoutput''%s)', '{slot}',
                   case when current_setting('server_version_num')::int >= 170000 then ', failover => true' else '' end);
end
$slot$;
