-- The ids of every visible row, as stretches of consecutive ids, each with the latest time that a row of it bears. Within
-- a stretch the id and the number of the row grow together, so their difference is the same. {number} is the id as a
-- type in which that difference cannot overflow.
select min(k.id) as lo, max(k.id) as hi, max(k.at) as latest
  from (select t.{id}::bigint as id, {at} as at, t.{id}::{number} - row_number() over (order by t.{id}) as island
          from {table} t) k
 group by k.island
 order by 1
