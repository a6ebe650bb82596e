select gov_handoff.gov_worker_pause(p_worker => $1, p_paused => $2, p_actor => $3, p_reason => $4)
