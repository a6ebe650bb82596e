//! Quoting identifiers and literals, for the few statements whose table names are data.

use crate::core::definition::{ColumnTest, SourceDefinition};
use crate::core::handoff::Source;

/// Quotes an identifier, whatever it contains.
#[must_use]
pub fn identifier(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a string literal, in the escape form because `standard_conforming_strings` may be off.
#[must_use]
pub fn literal(text: &str) -> String {
    format!(" E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[must_use]
pub fn table(source: &SourceDefinition) -> String {
    format!("{}.{}", identifier(&source.schema), identifier(source.table()))
}

/// The columns of a source as text, exactly as the stream writes them: by the output function of their type. For most
/// types a cast gives the same text and is cheaper. For the others (`Source::cast_apart`) `concat` calls the output
/// function. It would turn NULL into empty text, so NULL is tested first. (`is not null` would test the fields of a
/// composite.)
#[must_use]
pub fn text_columns(source: &Source) -> String {
    let column = |(i, name): (usize, &String)| {
        let c = format!("t.{}", identifier(name));
        if source.cast_apart.contains(name) {
            format!("case when {c} is distinct from null then concat({c}) end as c{i}")
        } else {
            format!("{c}::text as c{i}")
        }
    };
    source.definition.columns.iter().enumerate().map(column).collect::<Vec<_>>().join(", ")
}

/// A condition that lets the server skip excluded rows. Only the rules of `core` decide what `exclude` means. The
/// condition may pass a row that the rules exclude, but it never skips a row that they keep. So the server tests only
/// columns of type text, byte by byte, against ASCII values, which are the same in every encoding. All other tests are
/// left to the rules.
#[must_use]
pub fn captured(source: &Source, prefix: &str) -> Option<String> {
    let tests = source.definition.exclude.iter().filter(|t| source.plain_text.contains(&t.column));
    let parts: Vec<_> = tests.filter_map(|t| Some(format!("not ({})", test(t, prefix)?))).collect();
    (!parts.is_empty()).then(|| parts.join(" and "))
}

/// As in the rules, NULL fails every test except `present = false`. `None` if only the rules can decide.
fn test(test: &ColumnTest, prefix: &str) -> Option<String> {
    let column = format!("{prefix}{}", identifier(&test.column));
    let mut values = test.equals.iter().chain(test.one_of.iter().flatten()).chain(&test.prefix);
    if !values.all(|value| value.is_ascii()) {
        return None;
    }
    let equals = |value: &String| format!("coalesce({column} collate \"C\" ={}, false)", literal(value));
    let holds = if let Some(value) = &test.equals {
        equals(value)
    } else if let Some(values) = &test.one_of {
        let any: Vec<_> = values.iter().map(equals).collect();
        if any.is_empty() { "false".to_owned() } else { format!("({})", any.join(" or ")) }
    } else if let Some(prefix) = &test.prefix {
        format!("coalesce(starts_with({column} collate \"C\",{}), false)", literal(prefix))
    } else {
        format!("{column} is {}null", if test.present == Some(false) { "" } else { "not " })
    };
    Some(if test.not { format!("not {holds}") } else { holds })
}

/// Fills the `{name}` places of a statement in one pass, because a filled-in text may itself look like a place.
#[must_use]
pub fn fill(sql: &str, places: &[(&str, &str)]) -> String {
    let mut out = String::with_capacity(sql.len());
    let mut rest = sql;
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        rest = &rest[open..];
        let place = places
            .iter()
            .find(|(name, _)| rest[1..].strip_prefix(name).is_some_and(|after| after.starts_with('}')));
        let (text, length) = place.map_or(("{", 1), |(name, text)| (*text, name.len() + 2));
        out.push_str(text);
        rest = &rest[length..];
    }
    out + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_stay_names() {
        assert_eq!(identifier("a\"; drop table x; --"), "\"a\"\"; drop table x; --\"");
        assert_eq!(literal("it's \\"), " E'it''s \\\\'");
    }

    #[test]
    fn a_name_that_looks_like_a_place_is_a_name() {
        let places = [("table", "\"{id}\""), ("id", "\"{table}\"")];
        assert_eq!(
            fill("select {id} from {table} where '{other}'", &places),
            "select \"{table}\" from \"{id}\" where '{other}'"
        );
    }

    #[test]
    fn null_fails_a_test_and_passes_its_negation() {
        let t =
            ColumnTest { column: "c".into(), equals: Some("x".into()), not: true, ..ColumnTest::default() };
        assert_eq!(test(&t, "").unwrap(), "not coalesce(\"c\" collate \"C\" = E'x', false)");
    }
}
