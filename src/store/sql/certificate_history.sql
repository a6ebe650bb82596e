select certificate
  from public.v_governance_certificate_history
 order by (certificate ->> 'taken_at')::timestamptz desc
 limit $1
