select certificate
  from public.v_governance_certificate_history
 order by taken_at desc
 limit $1
