//! Numbers, sizes, times and durations as people read them.

/// Thousands in groups.
#[must_use]
pub fn count(n: i64) -> String {
    let digits = n.unsigned_abs().to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    if n < 0 { format!("-{out}") } else { out }
}

/// A duration in its largest unit that is at least one: `0.4 s`, `38 s`, `4 min`, `3 h`, `12 d`.
#[must_use]
pub fn age(seconds: f64) -> String {
    let seconds = seconds.max(0.0);
    match seconds {
        s if s < 9.95 => format!("{s:.1} s"),
        s if s < 120.0 => format!("{s:.0} s"),
        s if s < 7_200.0 => format!("{:.0} min", s / 60.0),
        s if s < 172_800.0 => format!("{:.0} h", s / 3_600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

/// A number of bytes: `640 KiB`, `12 MiB`, `1.5 GiB`.
#[must_use]
pub fn bytes(n: i64) -> String {
    #[allow(clippy::cast_precision_loss)] // For people to read.
    let n = n as f64;
    match n.abs() {
        b if b < 1_024.0 * 1_024.0 => format!("{:.0} KiB", n / 1_024.0),
        b if b < 1_024.0 * 1_024.0 * 1_024.0 => format!("{:.0} MiB", n / (1_024.0 * 1_024.0)),
        _ => format!("{:.1} GiB", n / (1_024.0 * 1_024.0 * 1_024.0)),
    }
}

/// `2026-11-18T12:04:31Z` as `2026-11-18 12:04:31 UTC`.
#[must_use]
pub fn time(at: &str) -> String {
    at.trim_end_matches('Z').replace('T', " ") + " UTC"
}

/// The clock of a time in UTC: `12:04:31`.
#[must_use]
pub fn clock(at: &str) -> String {
    at.trim_end_matches('Z').split('T').next_back().unwrap_or(at).to_owned()
}

/// A rate or a measured number with as many digits as matter: `0.4`, `12`, `1,200`.
#[must_use]
pub fn number(n: f64) -> String {
    #[allow(clippy::cast_possible_truncation)] // Charts show numbers far below that.
    if n == 0.0 || n >= 9.95 { count(n.round() as i64) } else { format!("{n:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_grouped() {
        assert_eq!([count(1_037_724), count(-5), count(999)], ["1,037,724", "-5", "999"]);
    }

    #[test]
    fn each_duration_and_size_has_its_unit() {
        assert_eq!(
            [0.44, 38.2, 130.0, 7_300.0, 200_000.0, -1.0].map(age),
            ["0.4 s", "38 s", "2 min", "2 h", "2 d", "0.0 s"]
        );
        assert_eq!([655_360, 12 << 20, 3 << 29].map(bytes), ["640 KiB", "12 MiB", "1.5 GiB"]);
        assert_eq!([0.0, 0.44, 12.3, 1_200.0].map(number), ["0", "0.4", "12", "1,200"]);
    }

    #[test]
    fn times_are_read_in_utc() {
        let at = "2026-11-18T12:04:31Z";
        assert_eq!((time(at), clock(at)), ("2026-11-18 12:04:31 UTC".to_owned(), "12:04:31".to_owned()));
    }
}
