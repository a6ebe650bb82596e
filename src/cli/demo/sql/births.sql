insert into public.birth_registry (entity_code, collection_name, canonical_address, status, source_system, actor_ref, birth_payload)
select 'e' || substr(md5(random()::text || n), 1, 12),
       (array['species', 'specimens', 'habitats', 'surveys', 'permits'])[1 + floor(random() * 5)::int],
       null,
       case when random() < 0.3 then 'registered' else 'new' end,
       'demo',
       'writer',
       jsonb_build_object('content', 'never leaves this table')
  from generate_series(1, $1::int) as n
