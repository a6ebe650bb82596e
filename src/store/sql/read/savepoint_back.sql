-- Rolls back to the savepoint, so that the transaction can continue, and removes it.
rollback to savepoint gov_handoff_rows; release savepoint gov_handoff_rows
