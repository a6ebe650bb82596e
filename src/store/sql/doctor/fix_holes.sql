insert into public.dot_config (key, value) values ('governance.holes.kept', '10000') on conflict (key) do update set value = excluded.value;
