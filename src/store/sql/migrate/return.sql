-- No role can become the owner of the gates, and the owner itself can create nothing.
do $$
begin
    if not (select r.rolsuper from pg_roles r where r.rolname = current_user) then
        execute format('revoke gov_handoff_owner from %I', current_user);
        revoke create on schema public, gov_handoff from gov_handoff_owner;
    end if;
end
$$
