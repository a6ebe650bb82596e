-- First, the columns whose cast to text may differ from the text that their type's output function writes. These are
-- columns of a type with a cast of its own (boolean, char(n), inet, xml, ...) and of every user-defined type. The owner
-- of such a type may add a cast at any time, and it would run with the privileges of the reading role. Without such a
-- cast the server uses the output function. Second, text and varchar columns, which are the text they hold. The server
-- may test these for us, unless their collation is user-defined: a publication's row filter may not name such a
-- collation.
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
