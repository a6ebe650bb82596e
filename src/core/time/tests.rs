//! Instants against known values of PostgreSQL, and against themselves.

use super::*;
use chrono_tz::Tz;
use proptest::prelude::*;

fn tz(text: &str) -> i64 {
    parse_timestamptz(text).unwrap_or_else(|error| panic!("{text}: {error}")).as_pg_micros()
}

fn at(text: &str, zone: Zone) -> String {
    parse_timestamp(text, zone).unwrap_or_else(|error| panic!("{text}: {error}")).to_string()
}

#[test]
fn known_instants() {
    assert_eq!(tz("2000-01-01 00:00:00+00"), 0);
    assert_eq!(tz("1970-01-01 00:00:00+00"), -946_684_800_000_000);
    assert_eq!(tz("2000-01-01 00:00:00.5-00:30"), 1_800_500_000);
    assert_eq!(tz("2000-01-01 05:30:20.000001+05:30:20"), 1);
    assert_eq!(tz("4714-11-24 00:00:00+00 BC"), PgInstant::MIN.as_pg_micros());
    assert_eq!(tz("294276-12-31 23:59:59.999999+00"), PgInstant::MAX.as_pg_micros());
    assert_eq!(tz("294277-01-01 06:59:59.999999+07"), PgInstant::MAX.as_pg_micros());
    assert_eq!(tz("infinity"), i64::MAX);
    assert_eq!(tz("-infinity"), i64::MIN);
}

#[test]
fn prints_one_spelling_per_instant() {
    let printed = |text| PgInstant::from_pg_micros(tz(text)).to_string();
    assert_eq!(printed("2026-11-16 12:00:00.123456+00"), "2026-11-16T12:00:00.123456Z");
    assert_eq!(printed("2026-11-16 19:00:00+07"), "2026-11-16T12:00:00.000000Z");
    assert_eq!(printed("0001-12-31 23:59:59.9+00 BC"), "0001-12-31T23:59:59.900000Z BC");
    assert_eq!(printed("12026-02-28 01:02:03+00"), "12026-02-28T01:02:03.000000Z");
    assert_eq!(printed("infinity"), "infinity");
    assert_eq!(printed("-infinity"), "-infinity");
}

#[test]
fn one_before_christ_is_a_leap_year() {
    assert_eq!(tz("0001-02-29 00:00:00+00 BC") + MICROS_PER_DAY, tz("0001-03-01 00:00:00+00 BC"));
    assert!(parse_timestamptz("0001-02-29 00:00:00+00").is_err());
}

#[test]
fn refuses_what_postgresql_never_writes() {
    for text in [
        "",
        "2026-11-16",
        "2026-11-16 12:00:00",
        "0000-01-01 00:00:00+00",
        "2026-13-01 00:00:00+00",
        "2026-02-29 00:00:00+00",
        "2026-11-16 24:00:00+00",
        "2026-11-16 12:00:60+00",
        "2026-11-16 12:00:00.+00",
        "2026-11-16 12:00:00.1234567+00",
        "2026-11-16 12:00:00+16",
        "2026-11-16 12:00:00+00 AD",
        "2026-11-16 12:00:00+00 ",
        "2026-11-16 12:00:00é",
        "+2026-11-16 12:00:00+00",
        "Infinity",
    ] {
        assert!(matches!(parse_timestamptz(text), Err(TimeError::Malformed { .. })), "{text:?}");
    }
    assert!(parse_timestamp("2026-11-16 12:00:00+00", Zone::Utc).is_err());
}

#[test]
fn beyond_the_range_is_an_error() {
    for text in
        ["294277-01-01 00:00:00+00", "4714-11-23 23:59:59.999999+00 BC", "999999-12-31 23:59:59-15:59:59"]
    {
        assert_eq!(parse_timestamptz(text), Err(TimeError::OutOfRange), "{text:?}");
    }
    assert_eq!(parse_timestamp("294276-12-31 23:59:59", Zone::Fixed(-1)), Err(TimeError::OutOfRange));
}

#[test]
fn an_error_tells_the_place_and_not_the_value() {
    let error = parse_timestamptz("2026-11-16 99:00:00+00").map_err(|error| error.to_string());
    assert_eq!(error, Err("expected an hour at byte 11 of the timestamp".to_owned()));
}

#[test]
fn local_time_is_read_in_its_zone() {
    assert_eq!(at("2026-11-16 19:00:00", Zone::Utc), "2026-11-16T19:00:00.000000Z");
    assert_eq!(at("2026-11-16 19:00:00", Zone::Fixed(7 * 3600)), "2026-11-16T12:00:00.000000Z");
    assert_eq!(
        at("2026-11-16 19:00:00.25", Zone::Named(Tz::Asia__Ho_Chi_Minh)),
        "2026-11-16T12:00:00.250000Z"
    );
    assert_eq!(at("2026-07-01 12:00:00", Zone::Named(Tz::Europe__Berlin)), "2026-07-01T10:00:00.000000Z");
    assert_eq!(at("infinity", Zone::Named(Tz::Europe__Berlin)), "infinity");
}

#[test]
fn an_ambiguous_local_time_is_the_later_instant_as_in_postgresql() {
    let berlin = Zone::Named(Tz::Europe__Berlin);
    assert_eq!(at("2026-10-25 01:59:59", berlin), "2026-10-24T23:59:59.000000Z");
    assert_eq!(at("2026-10-25 02:00:00", berlin), "2026-10-25T01:00:00.000000Z");
    assert_eq!(at("2026-10-25 02:30:00", berlin), "2026-10-25T01:30:00.000000Z");
    assert_eq!(at("2026-10-25 03:00:00", berlin), "2026-10-25T02:00:00.000000Z");
}

#[test]
fn a_local_time_that_never_was_is_shifted_by_the_gap() {
    let berlin = Zone::Named(Tz::Europe__Berlin);
    assert_eq!(at("2026-03-29 02:30:00", berlin), "2026-03-29T01:30:00.000000Z");
    assert_eq!(at("2026-03-29 03:30:00", berlin), "2026-03-29T01:30:00.000000Z");
    // Samoa left out a whole day.
    assert_eq!(at("2011-12-30 12:00:00", Zone::Named(Tz::Pacific__Apia)), "2011-12-30T22:00:00.000000Z");
}

#[test]
fn years_no_zone_knows_are_utc() {
    assert_eq!(at("294276-01-01 00:00:00", Zone::Named(Tz::Asia__Tokyo)), "294276-01-01T00:00:00.000000Z");
}

#[test]
fn unix_time_is_thirty_years_ahead() {
    assert_eq!(
        PgInstant::from_unix_micros(0).map(|at| at.to_string()),
        Some("1970-01-01T00:00:00.000000Z".into())
    );
    assert_eq!(PgInstant::from_pg_micros(1).as_unix_micros(), Some(946_684_800_000_001));
    assert_eq!(PgInstant::from_unix_micros(i64::MIN), None);
    for extreme in [PgInstant::INFINITY, PgInstant::NEG_INFINITY, PgInstant::MAX] {
        assert_eq!(extreme.as_unix_micros(), None);
    }
}

#[test]
fn zones_are_texts_to_people_and_to_serde() {
    for text in ["UTC", "+07:00", "-00:30", "+05:30:20", "Asia/Ho_Chi_Minh"] {
        let zone: Zone = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(zone.to_string(), text);
        let json = serde_json::json!(zone);
        assert_eq!(json, serde_json::json!(text));
        assert_eq!(serde_json::from_value::<Zone>(json).ok(), Some(zone));
    }
    for text in ["", "utc+7", "+7", "+07:00x", "+16:00", "Mars/Olympus_Mons"] {
        assert!(text.parse::<Zone>().is_err(), "{text:?} was accepted");
    }
}

#[test]
fn serializes_as_its_text() {
    assert_eq!(serde_json::json!(PgInstant::from_pg_micros(0)), "2000-01-01T00:00:00.000000Z");
}

/// Any instant PostgreSQL can keep, those near the edges and the infinities more often than chance would have
/// it.
fn instant() -> impl Strategy<Value = PgInstant> {
    let (min, max) = (PgInstant::MIN.as_pg_micros(), PgInstant::MAX.as_pg_micros());
    prop_oneof![
        4 => min..=max,
        4 => -100 * 366 * MICROS_PER_DAY..=100 * 366 * MICROS_PER_DAY,
        1 => min..=min + MICROS_PER_DAY,
        1 => max - MICROS_PER_DAY..=max,
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX)],
    ]
    .prop_map(PgInstant::from_pg_micros)
}

/// As a server in a zone that far east would write it.
fn as_the_server_writes(instant: PgInstant, east: i32) -> Option<String> {
    let local = instant.as_pg_micros().checked_add(i64::from(east) * MICROS_PER_SECOND)?;
    let printed = PgInstant::from_pg_micros(local).to_string();
    let (date_time, era) = printed.split_once('Z')?;
    let date_time = date_time.replace('T', " ");
    Some(format!("{}{}{era}", date_time.trim_end_matches('0').trim_end_matches('.'), Zone::Fixed(east)))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn text_round_trips(instant in instant()) {
        prop_assert_eq!(parse_timestamptz(&instant.to_string()), Ok(instant));
    }

    #[test]
    fn the_offset_written_does_not_matter(instant in instant(), east in -57_599..57_600i32) {
        if instant.is_finite() && let Some(text) = as_the_server_writes(instant, east) {
            prop_assert_eq!(parse_timestamptz(&text), Ok(instant), "{}", text);
        }
    }

    #[test]
    fn texts_are_ordered_as_their_micros(a in instant(), b in instant()) {
        let parsed = (parse_timestamptz(&a.to_string()), parse_timestamptz(&b.to_string()));
        prop_assert_eq!(parsed.0.ok().cmp(&parsed.1.ok()), a.as_pg_micros().cmp(&b.as_pg_micros()));
    }

    #[test]
    fn any_integer_can_be_printed(micros: i64) {
        let _ = PgInstant::from_pg_micros(micros).to_string();
    }

    #[test]
    fn unix_micros_round_trip(instant in instant()) {
        if let Some(unix) = instant.as_unix_micros() {
            prop_assert_eq!(PgInstant::from_unix_micros(unix), Some(instant));
        }
    }

    #[test]
    fn every_zone_reads_every_local_time(
        instant in instant(), zone in prop::sample::select(&chrono_tz::TZ_VARIANTS[..]),
    ) {
        let text = instant.to_string().replace('Z', "");
        match parse_timestamp(&text, Zone::Named(zone)) {
            // No zone was ever further than a day from Greenwich.
            Ok(read) if instant.is_finite() => {
                let apart = i128::from(read.as_pg_micros()) - i128::from(instant.as_pg_micros());
                prop_assert!(apart.abs() <= i128::from(MICROS_PER_DAY));
            }
            Ok(read) => prop_assert_eq!(read, instant),
            Err(error) => prop_assert_eq!(error, TimeError::OutOfRange),
        }
    }

    #[test]
    fn arbitrary_text_never_panics(
        text in ".*", like in "-?[0-9]{0,7}-[0-9]{2}-[0-9é]{2}[ T][0-9:.+Z-]{0,20}( BC)?",
    ) {
        for text in [text, like] {
            let _ = (parse_timestamptz(&text), text.parse::<Zone>());
            let _ = parse_timestamp(&text, Zone::Named(Tz::Europe__Berlin));
        }
    }

    #[test]
    fn any_fixed_offset_is_safe(instant in instant(), east: i32) {
        let zone = Zone::Fixed(east);
        let _ = (parse_timestamp(&instant.to_string().replace('Z', ""), zone), zone.to_string());
    }
}
