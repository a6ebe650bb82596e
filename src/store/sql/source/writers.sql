-- The transactions that hold a writing lock on the table. Every transaction that took an id and has not committed is
-- among them, prepared ones included.
select clock_timestamp() as at,
       coalesce(array_agg(distinct l.virtualtransaction) filter (where l.virtualtransaction is not null), '{}') as writers
  from pg_locks l
 where l.locktype = 'relation' and l.database = (select oid from pg_database where datname = current_database())
   and l.relation = $1::text::regclass
   and l.mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
   and l.granted
