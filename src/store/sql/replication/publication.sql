select p.pubinsert, p.pubupdate or p.pubdelete or p.pubtruncate as pubmore, p.puballtables, p.pubviaroot,
       coalesce((select jsonb_agg(jsonb_build_object('schema', t.schemaname, 'table', t.tablename,
                                                     'columns', to_jsonb(t.attnames), 'filtered', t.rowfilter is not null))
                   from pg_publication_tables t where t.pubname = p.pubname), '[]') as tables,
       obj_description(p.oid, 'pg_publication') as note,
       -- In the form that publication_note.sql recorded.
       (select encode(sha256(convert_to(coalesce(string_agg(concat_ws(' ', t.schemaname, t.tablename, t.rowfilter), chr(10)
                   order by t.schemaname, t.tablename), ''), 'UTF8')), 'hex')
          from pg_publication_tables t where t.pubname = p.pubname and t.rowfilter is not null) as filters
  from pg_publication p
 where p.pubname = $1
