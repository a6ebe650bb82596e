-- Texts in the encoding of the database, converted to the encoding of this session.
select convert_from(u.v, getdatabaseencoding())
  from unnest($1::bytea[]) with ordinality as u (v, n)
 order by u.n
