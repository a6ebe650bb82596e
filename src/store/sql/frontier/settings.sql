-- A scan may take longer than a poll. JIT is off: for such a simple scan, compiling in each process costs more than it
-- saves.
set local statement_timeout = '10min';
set local jit = off
