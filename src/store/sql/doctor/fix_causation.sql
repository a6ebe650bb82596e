alter table public.event_outbox add column causation_id uuid;
