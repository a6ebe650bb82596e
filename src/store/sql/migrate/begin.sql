-- One migration at a time per database: the lock on this table lasts until the transaction ends.
do $$
begin
    create table public.gov_schema_version (
        version    integer     primary key,
        name       text        not null,
        checksum   text        not null,
        created    text[]      not null default '{}',
        applied_at timestamptz not null default now()
    );
exception when duplicate_table or unique_violation then
    null;  -- here already, or made by another migration a moment ago
end
$$;
lock table public.gov_schema_version in exclusive mode
