-- A count of all events takes longer than a page of the inbox. Each row has to be visited, whatever the session prefers.
set local statement_timeout = '10min';
set local jit = off;
set local enable_seqscan = on
