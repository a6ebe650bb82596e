select waiting, retrying, dead_letters, dirty_groups, open_findings from public.v_governance_summary
