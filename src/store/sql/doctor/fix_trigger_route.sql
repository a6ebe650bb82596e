insert into public.iu_sql_event_route (route_code, source_object_kind, source_object, sql_event, target_event_domain, target_event_type, target_event_stream)
values ({code}, 'trigger', {trigger}, {event}, 'system', {function}, 'update');
