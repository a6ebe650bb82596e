-- One migration at a time per database; the lock goes with the transaction.
select pg_advisory_xact_lock(6748001, 0);
create table if not exists public.gov_schema_version (
    version    integer     primary key,
    name       text        not null,
    checksum   text        not null,
    created    text[]      not null default '{}',
    applied_at timestamptz not null default now()
);
