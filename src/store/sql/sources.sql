-- The sources, and of each the columns whose cast to text need not be what their type's output function writes: those of a
-- type with a cast of its own (boolean, char(n), inet, xml, ...), and domains, whatever they are made of. Without such a
-- cast the server goes by the output function; text and varchar are the text they hold.
select c.source_name, c.metadata,
       array(select a.attname::text
               from pg_namespace n
               join pg_class r on r.relnamespace = n.oid and r.relname = coalesce(c.metadata ->> 'table', c.source_name)
               join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
               join pg_type t on t.oid = a.atttypid
              where n.nspname = coalesce(c.metadata ->> 'schema', 'public')
                and c.metadata -> 'columns' ? a.attname::text
                and (t.typtype = 'd'
                     or (t.oid not in ('text'::regtype, 'varchar'::regtype)
                         and exists (select from pg_cast k where k.castsource = t.oid and k.casttarget = 'text'::regtype)))
              order by a.attnum) as cast_apart,
       v.version
  from public.gov_worker_cursor c
  join public.gov_source_version v on v.worker_name = c.worker_name and v.source_name = c.source_name
 where c.worker_name = $1
 order by c.source_name
