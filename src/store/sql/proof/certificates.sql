select source_name, certificate
  from public.v_governance_certificate
 where worker_name = $1
 order by source_name
