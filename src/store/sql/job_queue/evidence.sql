select e.token, e.evidence, e.at::text from public.job_evidence e where e.job_id = $1 order by e.token
