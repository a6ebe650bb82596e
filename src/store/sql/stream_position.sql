select system_identifier, timeline, durable_lsn from public.gov_stream_position where slot_name = $1
