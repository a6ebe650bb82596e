select last_watermark_ts from public.gov_worker_cursor where worker_name = $1 and source_name = $2
