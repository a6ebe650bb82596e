select gov_handoff.gov_dead_letter_resolve(p_ids => $1, p_resolution => $2, p_reason => $3, p_actor => $4)
