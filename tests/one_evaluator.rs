//! `exclude` means what the rules say, on every path. The server's own comparison is never asked about values.

use crate::support::process::{Registry, until};
use crate::support::sources::{register, rule, source};

/// A row of each is equal to the tested value for the server and is another text: only the rules decide.
const TABLE: &str = "
create collation insensitive (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
create table typed (id int primary key, amount numeric, code char(4), folded text collate insensitive, plain text, kind uuid);";
const ROWS: &str = "
insert into typed values (1, 1, 'a', 'x', 'k', null), (2, 1.0, 'a', 'y', 'k', null), (3, 2, 'abcd', 'SKIP', 'k', null),
    (4, 2, 'abcd', 'skip', 'k', null), (5, 2, 'abcd', 'y', 'skip', null), (6, 2, 'abcd', 'y', 'SKIP', null),
    (7, 2, 'abcd', 'y', 'k', 'aa000000-0000-0000-0000-000000000000'), (8, 2, 'abcd', 'y', null, null),
    (9, 2, 'abcd', 'y', 'pre-x', null), (10, 2, 'abcd', 'y', 'PRE-x', null)";

#[tokio::test]
async fn a_value_that_only_the_server_calls_equal_is_not_left_out_by_either_path() {
    let exclude =
        "exclude = [{ column = \"amount\", equals = \"1\" }, { column = \"folded\", equals = \"skip\" },
        { column = \"plain\", one_of = [\"skip\"] }, { column = \"plain\", prefix = \"pre\" },
        { column = \"kind\", prefix = \"aa\" }]\n";
    let columns = ["id", "amount", "code", "folded", "plain", "kind"];
    let sources =
        source("typed", "int4", &columns) + exclude + &rule("object_born", "t", "t:{id}", ["g", "{code}"]);
    for mode in ["poll", "stream"] {
        let registry = Registry::new().await;
        registry.sql(TABLE).await;
        register(&registry.url, &sources).await;
        let daemon = registry.capturing(mode, "1h").await;
        registry.sql(ROWS).await;
        registry.births("after", 1).await;
        until("what came after is there", async || {
            registry
                .number("select count(*) from verify.handoffs where canonical_address like '%after1'")
                .await
                > 0
        })
        .await;
        let due = "select string_agg(distinct safe_payload ->> 'source_key', ',') from verify.handoffs
                    where safe_payload ->> 'source' = 'typed'";
        until("exactly these are due", async || registry.text(due).await.as_deref() == Some("10,2,3,6,8"))
            .await;
        let by = format!(
            "select count(*) from verify.handoffs where safe_payload ->> 'source' = 'typed' and safe_payload ->> 'captured_by' = '{mode}'"
        );
        assert_eq!(registry.number(&by).await, 5, "{mode}");
        drop(daemon);
        registry.drop_slots().await;
    }
}
