//! What the server sends, written by ourselves: the tests' other half of the decoder.

use super::{Datum, Relation, Tuple};

pub(crate) fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

pub(crate) fn put_tuple(out: &mut Vec<u8>, kind: u8, tuple: &Tuple) {
    out.push(kind);
    out.extend_from_slice(&(tuple.0.len() as u16).to_be_bytes());
    for datum in &tuple.0 {
        let (tag, value) = match datum {
            Datum::Null => (b'n', None),
            Datum::Unchanged => (b'u', None),
            Datum::Text(value) => (b't', Some(value)),
            Datum::Binary(value) => (b'b', Some(value)),
        };
        out.push(tag);
        if let Some(value) = value {
            out.extend_from_slice(&(value.len() as u32).to_be_bytes());
            out.extend_from_slice(value);
        }
    }
}

/// A tag and the 32-bit number that follows it.
pub(crate) fn tagged(tag: u8, id: u32) -> Vec<u8> {
    let mut out = vec![tag];
    out.extend_from_slice(&id.to_be_bytes());
    out
}

pub(crate) fn relation(relation: &Relation) -> Vec<u8> {
    let mut out = tagged(b'R', relation.id);
    put_string(&mut out, if relation.namespace == "pg_catalog" { "" } else { &relation.namespace });
    put_string(&mut out, &relation.name);
    out.push(relation.replica_identity);
    out.extend_from_slice(&(relation.columns.len() as u16).to_be_bytes());
    for column in &relation.columns {
        out.push(column.flags);
        put_string(&mut out, &column.name);
        out.extend_from_slice(&column.type_oid.to_be_bytes());
        out.extend_from_slice(&column.type_modifier.to_be_bytes());
    }
    out
}

pub(crate) fn insert(relation: u32, new: &Tuple) -> Vec<u8> {
    let mut out = tagged(b'I', relation);
    put_tuple(&mut out, b'N', new);
    out
}
