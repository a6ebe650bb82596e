begin;
{publication};
commit;
