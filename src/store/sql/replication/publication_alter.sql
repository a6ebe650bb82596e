alter publication {name} set (publish = 'insert');
alter publication {name} set table
    {tables};
{note}
