alter function {function} set search_path = pg_catalog, pg_temp;
