-- Records what the row filters were made from and how the server shows them, so that a later change is noticed.
do $note$
begin
    execute format('comment on publication %I is %L',{name}, (
        select concat_ws(' ', 'gov-handoff: row filters {asked}',
                         encode(sha256(convert_to(coalesce(string_agg(concat_ws(' ', t.schemaname, t.tablename, t.rowfilter), chr(10)
                             order by t.schemaname, t.tablename), ''), 'UTF8')), 'hex'))
          from pg_publication_tables t
         where t.pubname ={name} and t.rowfilter is not null));
end
$note$;
