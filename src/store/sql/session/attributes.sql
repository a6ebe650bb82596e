-- What target_session_attrs asks about. All names are qualified: the session may not have got its search_path.
select pg_catalog.pg_is_in_recovery() as standby,
       pg_catalog.current_setting('default_transaction_read_only') operator(pg_catalog.=) 'on' as read_only
