select {columns}
  from {table} t
 where t.{id} = any ($1::text[]::{id_type}[])
