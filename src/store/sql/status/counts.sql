select waiting, retrying, more, dead_letters, dirty_groups, open_findings from public.v_governance_summary
