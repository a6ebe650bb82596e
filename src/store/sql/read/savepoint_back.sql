-- Back to where the transaction can go on, and without the savepoint.
rollback to savepoint gov_handoff_rows; release savepoint gov_handoff_rows
