-- The sources, and of each the columns whose cast to text need not be what their type's output function writes: those of a
-- type with a cast of its own (boolean, char(n), inet, xml, ...), and all types that somebody made: their owner may give
-- them a cast at any time, and it would run as whoever reads. Without such a cast the server goes by the output function;
-- text and varchar are the text they hold. Those two are the columns that the
-- server may test for us, unless their collation is one that somebody made: a publication's row filter may not name such.
select c.source_name, c.metadata,
       array(select a.attname::text
               from pg_namespace n
               join pg_class r on r.relnamespace = n.oid and r.relname = coalesce(c.metadata ->> 'table', c.source_name)
               join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
               join pg_type t on t.oid = a.atttypid
              where n.nspname = coalesce(c.metadata ->> 'schema', 'public')
                and c.metadata -> 'columns' ? a.attname::text
                and (t.oid::int8 >= 16384
                     or (t.oid not in ('text'::regtype, 'varchar'::regtype)
                         and exists (select from pg_cast k where k.castsource = t.oid and k.casttarget = 'text'::regtype)))
              order by a.attnum) as cast_apart,
       array(select a.attname::text
               from pg_namespace n
               join pg_class r on r.relnamespace = n.oid and r.relname = coalesce(c.metadata ->> 'table', c.source_name)
               join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
              where n.nspname = coalesce(c.metadata ->> 'schema', 'public')
                and c.metadata -> 'columns' ? a.attname::text
                and a.atttypid in ('text'::regtype, 'varchar'::regtype)
                and a.attcollation::int8 < 16384
              order by a.attnum) as plain_text,
       v.version
  from public.gov_worker_cursor c
  join public.gov_source_version v on v.worker_name = c.worker_name and v.source_name = c.source_name
 where c.worker_name = $1
 order by c.source_name
