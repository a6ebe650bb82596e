-- The open ranges that the first read of a source will leave.
select count(*) as open, coalesce(sum(d.gap - 1), 0)::bigint as ids
  from (select t.{id}::numeric - lag(t.{id}::numeric) over (order by t.{id}) as gap from {table} t) d
 where d.gap > 1
