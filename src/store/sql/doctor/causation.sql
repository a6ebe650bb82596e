select exists (select from pg_attribute a
                where a.attrelid = to_regclass('public.event_outbox') and a.attname = 'causation_id' and not a.attisdropped)
