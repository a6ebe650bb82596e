-- Longer than a poll may take; and compiling a scan that is this plain costs more than it saves, in each of its processes.
set local statement_timeout = '10min';
set local jit = off
