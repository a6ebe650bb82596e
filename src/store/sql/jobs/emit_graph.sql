select a.job_id, a.outcome, a.reason from public.fn_mot_graph_emit(p_graph => $1) a
