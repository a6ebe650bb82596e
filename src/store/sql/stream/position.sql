select system_identifier, timeline, durable_lsn from public.v_governance_stream where slot_name = $1
