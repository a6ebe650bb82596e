-- The transaction that wrote the row with this key, found by the index of the key.
select t.xmin::text::bigint as writer
  from {table} t
 where t.{id} = $1::text::{id_type}
