select u.key
  from unnest($1::text[]) as u (key)
 where not exists (select from {table} t where t.{id} = u.key::{id_type})
