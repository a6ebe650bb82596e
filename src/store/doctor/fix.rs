//! What puts a check right, as statements that can be run as they are. Names are quoted here.

use crate::core::doctor::Fix;
use crate::store::quote;

/// A template with its places filled: each statement ends with a semicolon at the end of a line, unless it is a block.
pub(super) fn fix(template: &str, places: &[(&str, &str)]) -> Fix {
    let filled = quote::fill(template, places);
    if filled.starts_with("begin;") || filled.contains("do $") {
        return Fix::sql(vec![filled.trim().to_owned()]);
    }
    let mut statements = vec![String::new()];
    for line in template.lines().filter(|line| !line.starts_with("--")) {
        let Some(last) = statements.last_mut() else { break };
        last.push_str(&quote::fill(line, places));
        last.push('\n');
        if line.trim_end().ends_with(';') {
            statements.push(String::new());
        }
    }
    Fix::sql(statements.iter().map(|s| s.trim().to_owned()).filter(|s| !s.is_empty()).collect())
}

/// A setting of the whole server. `value` is quoted here.
pub(super) fn setting(name: &str, value: &str) -> Fix {
    let value = quote::literal(value);
    fix(include_str!("../sql/doctor/fix_setting.sql"), &[("setting", name), ("value", value.trim())])
}

/// Drops a slot that no session reads.
pub(super) fn drop_slot(slot: &str) -> Fix {
    fix(include_str!("../sql/doctor/fix_slot_drop.sql"), &[("slot", quote::literal(slot).trim())])
}

/// What makes a live table as the gates need it, from one row of `shape.sql`.
pub(super) fn shape(table: &str, column: &str, wanted: &str, found: Option<&str>) -> Fix {
    let (table, quoted) = (format!("public.{}", quote::identifier(table)), quote::identifier(column));
    let places = [("table", table.as_str()), ("column", &quoted), ("type", wanted)];
    match found {
        None => fix(include_str!("../sql/doctor/fix_column_add.sql"), &places),
        Some("not unique") => {
            let partial = if column.contains("event_subject_ref") {
                " where event_subject_ref is not null"
            } else {
                ""
            };
            let columns = format!("{column}{partial}");
            fix(include_str!("../sql/doctor/fix_unique.sql"), &[("table", &table), ("columns", &columns)])
        }
        Some("not null without a default") => fix(include_str!("../sql/doctor/fix_column_null.sql"), &places),
        Some(_) => fix(include_str!("../sql/doctor/fix_column_type.sql"), &places),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_ends_no_statement() {
        let fixed = drop_slot("a'; drop table x;\n--");
        assert_eq!(fixed.sql.len(), 1, "{fixed:?}");
        assert!(fixed.sql[0].contains("E'a''; drop table x;\n--'"), "{fixed:?}");
        let two = setting("wal_level", "logical");
        assert_eq!(two.sql, ["alter system set wal_level = E'logical';", "select pg_reload_conf();"]);
    }
}
