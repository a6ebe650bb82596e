select p.pubinsert, p.pubupdate or p.pubdelete or p.pubtruncate as pubmore, p.puballtables, p.pubviaroot,
       coalesce((select jsonb_agg(jsonb_build_object('schema', t.schemaname, 'table', t.tablename,
                                                     'columns', to_jsonb(t.attnames), 'filtered', t.rowfilter is not null))
                   from pg_publication_tables t where t.pubname = p.pubname), '[]') as tables
  from pg_publication p
 where p.pubname = $1
