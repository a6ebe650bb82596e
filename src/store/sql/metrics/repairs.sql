select source_name, reason, repaired
  from public.v_governance_repair
 where worker_name = $1
 order by source_name, reason
