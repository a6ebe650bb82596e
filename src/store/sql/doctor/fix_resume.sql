select gov_handoff.gov_worker_pause(p_worker => {worker}, p_paused => false, p_actor => null, p_reason => null);
