-- The next candidates of a walk. The inner page is bounded, whatever share of the candidates belongs to the source.
select w.id, p.key as reached, p.n < $2 as ends, c.candidate_key, c.source_name, c.source_key, c.key_conflict
  from (select r.id, r.reached from public.gov_input_recheck r
         where r.done_at is null and r.source_name = $1 order by r.id limit 1) w
 cross join lateral (
       select max(k.candidate_key) as key, count(*) as n
         from (select s.candidate_key from public.gov_candidate_state s
                where s.candidate_key > w.reached order by s.candidate_key limit $2) k) p
  left join public.gov_candidate_state c
         on c.candidate_key > w.reached and c.candidate_key <= p.key and c.source_name = $1
