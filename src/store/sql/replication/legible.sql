-- Texts in the database's own encoding, as this session reads them.
select convert_from(u.v, getdatabaseencoding())
  from unnest($1::bytea[]) with ordinality as u (v, n)
 order by u.n
