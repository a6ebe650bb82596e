-- Of a source the columns whose cast to text need not be what their type's output function writes: those of a
-- type with a cast of its own (boolean, char(n), inet, xml, ...), and all types that somebody made: their owner may give
-- them a cast at any time, and it would run as whoever reads. Without such a cast the server goes by the output function;
-- text and varchar are the text they hold. Those two are the columns that the
-- server may test for us, unless their collation is one that somebody made: a publication's row filter may not name such.
array(select a.attname::text
        from pg_namespace n
        join pg_class r on r.relnamespace = n.oid and r.relname = {table}
        join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
        join pg_type t on t.oid = a.atttypid
       where n.nspname = {schema} and {columns} ? a.attname::text
         and (t.oid::int8 >= 16384
              or (t.oid not in ('text'::regtype, 'varchar'::regtype)
                  and exists (select from pg_cast k where k.castsource = t.oid and k.casttarget = 'text'::regtype)))
       order by a.attnum) as cast_apart,
array(select a.attname::text
        from pg_namespace n
        join pg_class r on r.relnamespace = n.oid and r.relname = {table}
        join pg_attribute a on a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped
       where n.nspname = {schema} and {columns} ? a.attname::text
         and a.atttypid in ('text'::regtype, 'varchar'::regtype) and a.attcollation::int8 < 16384
       order by a.attnum) as plain_text
