-- All names are qualified: a session that did not get its search_path must not run an object from another schema.
select pg_catalog.string_agg(s.name operator(pg_catalog.||) '=' operator(pg_catalog.||) s.setting, pg_catalog.chr(10)) as settings,
       pg_catalog.pg_backend_pid() as pid
  from pg_catalog.pg_settings s
 where pg_catalog.lower(s.name) operator(pg_catalog.=) any ({names}::pg_catalog.text[])
