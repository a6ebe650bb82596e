-- A value as its type's output function writes it.
select concat({value}::{type})
