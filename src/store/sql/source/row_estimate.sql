select greatest(c.reltuples, 0)::bigint from pg_class c where c.oid = $1::text::regclass
