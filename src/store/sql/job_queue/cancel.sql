select a.job_id, a.outcome, a.reason
  from unnest($1::uuid[]) with ordinality as i (id, n)
 cross join lateral public.fn_job_cancel(p_id => i.id, p_reason => $2, p_actor => $3) a
 order by i.n
