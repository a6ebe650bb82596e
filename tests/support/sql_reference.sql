-- The generated part of docs/sql.md, one line a row. Everything is read from the catalogue of a fresh database.
with ours as (
    select c.oid, c.relkind, n.nspname, c.relname, case when n.nspname = 'public' then '' else n.nspname || '.' end || c.relname as name
      from pg_class c join pg_namespace n on n.oid = c.relnamespace
     where n.nspname in ('public', 'gov_handoff') and c.relkind in ('r', 'v')
), roles as (
    select r.rolname, r.letter, r.n
      from (values ('gov_handoff_worker', 'W', 1), ('gov_handoff_operator', 'O', 2), ('gov_handoff_observer', 'B', 3),
                   ('gov_handoff_producer', 'P', 4), ('gov_handoff_executor', 'E', 5)) as r (rolname, letter, n)
      join pg_roles g on g.rolname = r.rolname
), relation as (
    select o.*, obj_description(o.oid, 'pg_class') as said,
           (select string_agg(r.letter, ' ' order by r.n) from roles r where has_table_privilege(r.rolname, o.oid, 'select')) as readers,
           -- The substrate has columns of the live system: only its vocabularies are shown.
           exists (select from gov_schema_version v where o.relname = any (v.created)) as substrate
      from ours o
), func as (
    select p.oid, n.nspname, p.proname, case when n.nspname = 'public' then '' else 'gov_handoff.' end || p.proname as name,
           pg_get_function_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result, obj_description(p.oid, 'pg_proc') as said,
           (select string_agg(r.letter, ' ' order by r.n) from roles r where has_function_privilege(r.rolname, p.oid, 'execute')) as callers,
           p.prorettype = 'trigger'::regtype as is_trigger
      from pg_proc p join pg_namespace n on n.oid = p.pronamespace
     where n.nspname = 'gov_handoff' or n.nspname = 'public' and p.proname ~ '^fn_(governance|event|job|queue|executor|mot)_'
), part (chapter, place, line, text) as (
    select 1, '', 0, E'## Functions\n\nW worker, O operator, B observer, P producer, E executor: the roles that may call it.\n'
    union all
    select 1, f.proname, 1, format(E'### `%s`\n\n%s (%s)\n\n```sql\n%s(%s)\n  returns %s\n```\n', f.name, coalesce(upper(left(f.said, 1)) || substr(f.said, 2), 'No comment'),
               f.callers, f.name, replace(f.arguments, ', ', E',\n    '), f.result)
           || coalesce(E'\n```sql\n' || (select string_agg(e.statement, E'\n' order by e.n) from pg_temp.example e where e.proname = f.proname) || E'\n```\n', '')
      from func f where f.callers is not null and f.callers <> 'W'
    union all
    select 2, '', 0, E'## Views\n'
    union all
    select 2, r.relname, 1, format(E'### `%s`\n\n%s (%s)\n\n| column | type | content |\n|---|---|---|\n', r.name, upper(left(r.said, 1)) || substr(r.said, 2), coalesce(r.readers, 'nobody directly'))
           || (select string_agg(format('| `%s` | %s | %s |', a.attname, format_type(a.atttypid, a.atttypmod), coalesce(replace(col_description(r.oid, a.attnum), '|', '\|'), '')), E'\n' order by a.attnum)
                 from pg_attribute a where a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped) || E'\n'
      from relation r where r.relkind = 'v'
    union all
    select 3, '', 0, E'## Tables\n\nNobody writes to them but the functions. The tables of the substrate are described by the documents of the live system.\n'
    union all
    select 3, r.relname, 1, format(E'### `%s`\n\n%s (%s)\n', r.name, coalesce(upper(left(r.said, 1)) || substr(r.said, 2), 'No comment'), coalesce(r.readers, 'nobody directly'))
           || coalesce(E'\n| column | type | content |\n|---|---|---|\n'
               || (select string_agg(format('| `%s` | %s | %s |', a.attname, format_type(a.atttypid, a.atttypmod), coalesce(replace(col_description(r.oid, a.attnum), '|', '\|'), '')), E'\n' order by a.attnum)
                     from pg_attribute a where a.attrelid = r.oid and a.attnum > 0 and not a.attisdropped) || E'\n', '')
      from relation r where r.relkind = 'r' and not r.substrate
    union all
    select 4, '', 0, E'## Vocabularies\n\nThe words that a column accepts. A word that is not listed is refused by the table itself.\n\n| table | constraint | words |\n|---|---|---|'
    union all
    select 4, r.relname || ' ' || k.conname, 1, format('| `%s` | `%s` | %s |', r.relname, k.conname,
               coalesce(replace((regexp_match(pg_get_constraintdef(k.oid), '''\{([^}]*)\}'''))[1], ',', ', '),
                        (select string_agg(x.m[1], ', ' order by x.n) from regexp_matches(pg_get_constraintdef(k.oid), '''([^'']+)''', 'g') with ordinality as x (m, n))))
      from relation r join pg_constraint k on k.conrelid = r.oid and k.contype = 'c'
     where pg_get_constraintdef(k.oid) ~ '(= ANY|\?\|) ' and pg_get_constraintdef(k.oid) !~ '\~'
    union all
    select 5, '', 0, E'\n## Functions of the daemon\n\nOther programs do not call these. The worker''s role may call those marked W; the others are called by functions only.\n\n| function | | what it does |\n|---|---|---|'
    union all
    select 5, f.proname, 1, format('| `%s` | %s | %s |', f.name, coalesce(f.callers, ''), replace(coalesce(f.said, ''), '|', '\|'))
      from func f where f.callers is null or f.callers = 'W'
)
select p.text from part p order by p.chapter, p.place collate "C", p.line
