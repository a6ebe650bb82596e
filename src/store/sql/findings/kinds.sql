select distinct kind from public.v_governance_finding order by kind
