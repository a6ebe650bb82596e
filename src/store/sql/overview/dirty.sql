-- In the order of their keys, for which there is an index: the longest dirty ones would need all of them to be sorted.
select group_key, dirty_reason, to_char(dirtied_at at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since, changes, members, verdict
  from public.v_gov_group
 where dirty
 order by group_key
 limit 8
