-- How far the oldest transaction id is behind, and how fast ids are used: from the oldest and the latest certificate of
-- the last day. Each frontier is a transaction id.
select (select max(age(d.datfrozenxid))::bigint from pg_database d) as age,
       (select (max(c.frontier) - min(c.frontier)) / nullif(extract(epoch from max(c.taken_at) - min(c.taken_at)), 0)
          from (select (h.certificate ->> 'frontier')::numeric as frontier, h.taken_at
                  from public.v_governance_certificate_history h
                 where h.taken_at > now() - interval '1 day') c)::float8 as rate
