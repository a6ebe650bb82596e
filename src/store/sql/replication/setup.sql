begin;
{publication}
commit;

{slot}
