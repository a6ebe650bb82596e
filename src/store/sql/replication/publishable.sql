-- For each table the reason why a publication cannot carry it with these columns; null if it can. Before PostgreSQL 18
-- no generated column can be published; since then the stored ones can.
select case when c.oid is null then 'there is no such table'
            when c.relkind <> 'r' then 'it is not an ordinary table'
            when c.relpersistence <> 'p' then 'it is not logged'
            when c.oid::int8 < 16384 then 'it belongs to the system'
            when m.absent is not null then 'it has no column ' || m.absent
            when m.generated is not null then 'its column ' || m.generated || ' is generated'
       end as problem
  from unnest($1::text[], $2::text[], $3::jsonb[]) with ordinality as s (schema, name, columns, n)
  left join pg_namespace p on p.nspname = s.schema
  left join pg_class c on c.relnamespace = p.oid and c.relname = s.name and c.relkind in ('r', 'p', 'v', 'm', 'f')
 cross join lateral (
       select min(w.name) filter (where a.attnum is null) as absent,
              min(w.name) filter (where a.attgenerated = 'v'
                  or a.attgenerated <> '' and current_setting('server_version_num')::int < 180000) as generated
         from jsonb_array_elements_text(s.columns) as w (name)
         left join pg_attribute a on a.attrelid = c.oid and a.attname = w.name and a.attnum > 0 and not a.attisdropped
       ) m
 order by s.n
