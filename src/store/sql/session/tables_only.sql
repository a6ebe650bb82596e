-- Whether views and foreign tables of others may be read in this session. Minor releases before August 2024 have no such setting.
select set_config(name, case when $1 then 'view, foreign-table' else '' end, false)
  from pg_settings where name = 'restrict_nonsystem_relation_kind'
