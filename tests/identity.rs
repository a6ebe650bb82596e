//! The program and the database compute the same identity for every kind of key.

use gov_handoff::core::definition::IdType;
use gov_handoff::core::identity::Identity;
use uuid::Uuid;

use crate::support::migrated;

#[tokio::test]
async fn rust_and_sql_agree_on_who_a_row_is() {
    let db = migrated().await;
    let integers = ["0", "1", "-1", "42", "1048575", "1048576", "4294967296", "2147483647", "-2147483648"];
    let wide = ["9223372036854775807", "-9223372036854775808", "1099511627775"];
    let uuids = [
        "00000000-0000-0000-0000-000000000000",
        "ffffffff-ffff-ffff-ffff-ffffffffffff",
        "8c04f5f7-1d6b-4c0e-9b1a-0123456789ab",
    ];
    let texts =
        ["", "a", "abc", "abcd", "abcde", "Điều 45", "🜚", "a\u{1f}b", " ", "%|=\\'\"", "\u{1}", "\u{10ffff}"];
    let cases = [
        (IdType::Int4, "int4", integers.as_slice()),
        (IdType::Int8, "int8", integers.as_slice()),
        (IdType::Int8, "int8", wide.as_slice()),
        (IdType::Uuid, "uuid", uuids.as_slice()),
        (IdType::Text, "text", texts.as_slice()),
    ];
    let query = "select gov_handoff.gov_handoff_identity($1, $2, $3, $4)";
    for (id_type, name, keys) in cases {
        for source in ["birth_registry", "nguồn", ""] {
            let identity = Identity::new(source, id_type);
            for key in keys {
                for kind in [None, Some("governance.handoff.object_born"), Some("")] {
                    let ours = kind.map_or_else(|| identity.subject(key), |kind| identity.signal(key, kind));
                    let row =
                        db.client.query_one(query, &[&source, &name, key, &kind]).await.expect("identity");
                    assert_eq!(row.get::<_, Uuid>(0), ours, "{source:?} {name} {key:?} {kind:?}");
                }
            }
        }
    }
}
