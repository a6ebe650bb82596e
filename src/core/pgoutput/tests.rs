//! The decoder against an encoder of its own, and against noise.

use super::encode::{put_string, put_tuple, relation as encode_relation, tagged};
use super::*;
use proptest::prelude::*;

/// A message as the server would send it: what it should decode to, and its bytes.
#[derive(Debug, Clone)]
struct Sent {
    change: Change,
    bytes: Vec<u8>,
}

fn name() -> impl Strategy<Value = String> {
    "[^\\x00]{1,12}"
}

fn datum() -> impl Strategy<Value = Datum> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..20).prop_map(Bytes::from);
    prop_oneof![
        Just(Datum::Null),
        Just(Datum::Unchanged),
        bytes().prop_map(Datum::Text),
        bytes().prop_map(Datum::Binary),
    ]
}

fn tuple() -> impl Strategy<Value = Tuple> {
    prop::collection::vec(datum(), 0..6).prop_map(Tuple)
}

fn relation() -> impl Strategy<Value = Relation> {
    let column = (any::<u8>(), name(), any::<u32>(), any::<i32>()).prop_map(
        |(flags, name, type_oid, type_modifier)| RelationColumn { flags, name, type_oid, type_modifier },
    );
    let namespace = prop_oneof![Just("pg_catalog".to_owned()), name()];
    (any::<u32>(), namespace, name(), any::<u8>(), prop::collection::vec(column, 0..6)).prop_map(
        |(id, namespace, name, replica_identity, columns)| Relation {
            id,
            namespace,
            name,
            replica_identity,
            columns,
        },
    )
}

/// Rows that move: inserts, and updates and deletes with every kind of old tuple.
fn row_change() -> impl Strategy<Value = Sent> {
    let old_kind = prop_oneof![Just(b'K'), Just(b'O')];
    (any::<u32>(), prop::option::of((old_kind, tuple())), tuple(), 0..3u8).prop_map(
        |(relation, old, new, op)| {
            let tag = [b'I', b'U', b'D'][usize::from(op)];
            let mut bytes = tagged(tag, relation);
            match (tag, old) {
                (b'U', Some((kind, old))) => put_tuple(&mut bytes, kind, &old),
                (b'D', old) => put_tuple(&mut bytes, old.map_or(b'K', |(kind, _)| kind), &new),
                _ => {}
            }
            if tag != b'D' {
                put_tuple(&mut bytes, b'N', &new);
            }
            let change = match tag {
                b'I' => Change::Insert { relation, new },
                b'U' => Change::Update { relation },
                _ => Change::Delete { relation },
            };
            Sent { change, bytes }
        },
    )
}

fn truncate() -> impl Strategy<Value = Sent> {
    (prop::collection::vec(any::<u32>(), 0..5), any::<u8>()).prop_map(|(relations, options)| {
        let mut bytes = tagged(b'T', relations.len() as u32);
        bytes.push(options);
        relations.iter().for_each(|id| bytes.extend_from_slice(&id.to_be_bytes()));
        Sent { change: Change::Truncate { relations }, bytes }
    })
}

/// The messages that carry nothing for us.
fn ignorable() -> impl Strategy<Value = Sent> {
    (any::<u64>(), name(), prop::collection::vec(any::<u8>(), 0..20), 0..5u8).prop_map(
        |(lsn, name, content, which)| {
            let fixed = |tag: u8, length: usize| {
                let mut bytes = vec![tag];
                bytes.extend(lsn.to_be_bytes().iter().cycle().take(length));
                bytes
            };
            let (change, mut bytes) = match which {
                0 => return Sent { change: Change::Begin, bytes: fixed(b'B', 20) },
                1 => return Sent { change: Change::Commit, bytes: fixed(b'C', 25) },
                2 => (Change::Origin, fixed(b'O', 8)),
                3 => (Change::Type, fixed(b'Y', 4)),
                _ => (Change::Message, fixed(b'M', 9)),
            };
            put_string(&mut bytes, &name);
            match change {
                Change::Type => put_string(&mut bytes, &name),
                Change::Message => {
                    bytes.extend_from_slice(&(content.len() as u32).to_be_bytes());
                    bytes.extend_from_slice(&content);
                }
                _ => {}
            }
            Sent { change, bytes }
        },
    )
}

fn sent() -> impl Strategy<Value = Sent> {
    let relation = relation().prop_map(|r| Sent { bytes: encode_relation(&r), change: Change::Relation(r) });
    prop_oneof![relation, row_change(), truncate(), ignorable()]
}

#[test]
fn an_insert_as_the_server_sends_it() {
    let bytes = Bytes::from_static(b"I\0\0\x40\x01N\0\x03t\0\0\0\x0242nu");
    let new = Tuple(vec![Datum::Text(Bytes::from_static(b"42")), Datum::Null, Datum::Unchanged]);
    assert_eq!(decode(&bytes), Ok(Change::Insert { relation: 16385, new }));
}

#[test]
fn values_are_slices_of_the_message() {
    let bytes = Bytes::from(b"I\0\0\0\x01N\0\x01t\0\0\0\x0242".to_vec());
    let Ok(Change::Insert { new, .. }) = decode(&bytes) else { panic!("not an insert") };
    let [Datum::Text(value)] = &new.0[..] else { panic!("not one text") };
    assert!(bytes.as_ptr_range().contains(&value.as_ptr()));
}

#[test]
fn an_empty_namespace_is_the_catalogue() {
    let bytes = Bytes::from_static(b"R\0\0\0\x01\0pg_class\0d\0\0");
    assert!(matches!(decode(&bytes), Ok(Change::Relation(r)) if r.namespace == "pg_catalog"));
}

#[test]
fn a_name_in_another_encoding_is_kept_readable() {
    let bytes = Bytes::from_static(b"R\0\0\0\x01s\0t\xe9\0d\0\0");
    assert!(matches!(decode(&bytes), Ok(Change::Relation(r)) if r.name == "t\u{fffd}"));
}

#[test]
fn what_is_wrong_is_named() {
    let cases: [(&'static [u8], DecodeError); 8] = [
        (b"", DecodeError::Truncated { wanted: 1, left: 0 }),
        (b"x", DecodeError::UnknownTag(b'x')),
        (b"I\0\0\0\x01K", DecodeError::UnknownTuple(b'K')),
        (b"D\0\0\0\x01N", DecodeError::UnknownTuple(b'N')),
        (b"I\0\0\0\x01N\0\x01z", DecodeError::UnknownDatum(b'z')),
        (b"I\0\0\0\x01N\0\0!!", DecodeError::TrailingBytes(2)),
        (b"I\0\0\0\x01N\0\x01t\xff\xff\xff\xff1", DecodeError::Truncated { wanted: 0xffff_ffff, left: 1 }),
        (b"R\0\0\0\x01name", DecodeError::Truncated { wanted: 5, left: 4 }),
    ];
    for (bytes, error) in cases {
        assert_eq!(decode(&Bytes::from_static(bytes)), Err(error));
    }
}

#[test]
fn a_huge_count_reserves_nothing() {
    let bytes = Bytes::from_static(b"T\xff\xff\xff\xff\0\0\0\0\x01");
    assert_eq!(decode(&bytes), Err(DecodeError::Truncated { wanted: 4, left: 0 }));
}

#[test]
fn debugging_a_row_shows_no_value() {
    let datum = Datum::Text(Bytes::from_static(b"secret"));
    assert_eq!(format!("{datum:?}"), "Text(6 bytes)");
}

proptest! {
    #[test]
    fn what_was_sent_is_decoded(sent in sent()) {
        prop_assert_eq!(decode(&sent.bytes.into()), Ok(sent.change));
    }

    #[test]
    fn every_strict_prefix_is_truncated(sent in sent()) {
        let bytes = Bytes::from(sent.bytes);
        for end in 0..bytes.len() {
            let decoded = decode(&bytes.slice(..end));
            let truncated = matches!(decoded, Err(DecodeError::Truncated { .. }));
            prop_assert!(truncated, "{} bytes: {:?}", end, decoded);
        }
    }

    #[test]
    fn anything_after_the_end_is_refused(sent in sent(), more in prop::collection::vec(any::<u8>(), 1..9)) {
        let bytes = Bytes::from([sent.bytes, more.clone()].concat());
        prop_assert_eq!(decode(&bytes), Err(DecodeError::TrailingBytes(more.len())));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(20_000))]

    #[test]
    fn arbitrary_bytes_never_panic(
        tag in "[RIUDTYOBCM]", bytes in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let _ = decode(&Bytes::from(bytes.clone()));
        // Noise seldom begins with a tag; given one, it reaches the parts that read counts and lengths.
        let _ = decode(&Bytes::from([tag.into_bytes(), bytes].concat()));
    }

    #[test]
    fn mutated_messages_never_panic(
        sent in sent(), hits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..5),
    ) {
        let mut bytes = sent.bytes;
        for (at, byte) in hits {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = decode(&bytes.into());
    }
}
