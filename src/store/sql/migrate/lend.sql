-- As in 0007_roles.sql, when it creates the roles; here for the steps after it.
do $$
begin
    if not (select r.rolsuper from pg_roles r where r.rolname = current_user)
       and exists (select from pg_roles r where r.rolname = 'gov_handoff_owner') then
        execute format('grant gov_handoff_owner to %I', current_user);
        if to_regnamespace('gov_handoff') is not null then
            grant create on schema public, gov_handoff to gov_handoff_owner;
        end if;
    end if;
end
$$
