-- Nobody can become the owner of the gates, and it makes nothing itself.
do $$
begin
    if not (select r.rolsuper from pg_roles r where r.rolname = current_user) then
        execute format('revoke gov_handoff_owner from %I', current_user);
        revoke create on schema public, gov_handoff from gov_handoff_owner;
    end if;
end
$$
