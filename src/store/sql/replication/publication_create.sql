create publication {name} for table
    {tables}
    with (publish = 'insert');
{note}
