-- One gate of the tick, behind the fence.
select done, more from gov_handoff.gov_tick_page(p_worker => $1, p_owner => $2, p_term => $3, p_gate => $4, p_begins => $5)
