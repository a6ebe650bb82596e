//! Days and dates of the proleptic Gregorian calendar, which is the one PostgreSQL counts by in every
//! century.
//!
//! The algorithms are Howard Hinnant's (`chrono-Compatible Low-Level Date Algorithms`), counted from
//! 2000-01-01 and with the year starting in March, so that the leap day is the last day of its year.

/// The days from 0000-03-01 to 2000-01-01.
const EPOCH: i64 = 730_425;
/// The days of 400 years, after which the calendar repeats.
const ERA: i64 = 146_097;

/// Days since 2000-01-01. Years are astronomical: 0 is 1 BC. Any date a year of seven digits can name is
/// safe.
pub fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month > 2 { year } else { year - 1 };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * ERA + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - EPOCH
}

/// The year, month and day of a day counted from 2000-01-01.
pub fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH;
    let (era, day_of_era) = (days.div_euclid(ERA), days.rem_euclid(ERA));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// The number of days of a month.
pub fn month_length(year: i64, month: i64) -> i64 {
    match month {
        4 | 6 | 9 | 11 => 30,
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_days() {
        assert_eq!(days_from_civil(2000, 1, 1), 0);
        assert_eq!(days_from_civil(1970, 1, 1), -10_957);
        assert_eq!(days_from_civil(2000, 3, 1), 60);
        // PostgreSQL's Julian day 0, and the first day after its range.
        assert_eq!(days_from_civil(-4713, 11, 24), -2_451_545);
        assert_eq!(days_from_civil(294_277, 1, 1), 106_751_983);
    }

    #[test]
    fn every_day_of_five_eras_follows_the_one_before() {
        let mut expected = (-800, 1, 1);
        for days in days_from_civil(-800, 1, 1)..days_from_civil(1200, 1, 1) {
            let (year, month, day) = expected;
            assert_eq!(civil_from_days(days), expected);
            assert_eq!(days_from_civil(year, month, day), days);
            expected = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                _ if day == month_length(year, month) => (year, month + 1, 1),
                _ => (year, month, day + 1),
            };
        }
    }
}
