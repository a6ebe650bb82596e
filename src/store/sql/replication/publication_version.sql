select concat_ws(' ',
           p.oid, p.xmin,
           (select string_agg(concat(r.oid, ':', r.xmin), ',' order by r.oid) from pg_publication_rel r where r.prpubid = p.oid),
           (select string_agg(concat(n.oid, ':', n.xmin), ',' order by n.oid) from pg_publication_namespace n
             where n.pnpubid = p.oid))
  from pg_publication p
 where p.pubname = $1
