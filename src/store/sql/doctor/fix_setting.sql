alter system set {setting} = {value};
select pg_reload_conf();
