-- Whether this session may read views and foreign tables. Minor releases before August 2024 do not have this setting.
select set_config(name, case when $1 then 'view, foreign-table' else '' end, false)
  from pg_settings where name = 'restrict_nonsystem_relation_kind'
