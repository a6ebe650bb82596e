-- Sixty codes, so that there are several hundred groups. A ruleset that changes concerns all of them, here several times a second;
-- it costs the intake one row.
insert into public.registry_changelog (entity_type, entity_code, action, source_system, actor_ref)
select k.entity_type, 'c' || floor(random() * 60)::int, k.action, 'demo', 'writer'
  from generate_series(1, $1::int) as n
  join (values (0, 'species', 'register'), (1, 'collection', 'edit'), (2, 'species', 'recount'),
               (3, 'habitat', 'retire'), (4, 'survey', 'migrate'), (5, 'axis', 'add'), (6, 'policy', 'edit'),
               (7, 'approval', 'grant'), (8, 'ruleset', 'edit'), (9, 'weather', 'observed')) as k (pick, entity_type, action)
    on k.pick = ($2::int + n) % 10
