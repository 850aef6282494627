//! Days, and which of them a row belongs to.

use std::fmt;

pub(super) const DAY_NANOS: u64 = 86_400_000_000_000;
/// A row from further ahead than this has a time that cannot be believed.
const AHEAD_NANOS: u64 = DAY_NANOS;
/// So has one from longer ago.
const BEHIND_NANOS: u64 = 30 * DAY_NANOS;

/// A day, UTC, counted from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Day(pub(super) u64);

impl Day {
    /// The day of a row: that of its time, or that of its arrival when its time cannot be believed.
    pub(super) fn of(time_nanos: u64, arrived_nanos: u64) -> Self {
        let earliest = arrived_nanos.saturating_sub(BEHIND_NANOS);
        let latest = arrived_nanos.saturating_add(AHEAD_NANOS);
        let believed = (earliest..=latest).contains(&time_nanos);
        Self(if believed { time_nanos } else { arrived_nanos } / DAY_NANOS)
    }

    /// The day that `2026-11-29` names.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, '-').map(|part| part.parse::<u64>().ok());
        let (year, month, day) = (parts.next()??, parts.next()??, parts.next()??);
        // March is the first month here, so that a leap day is the last day of a year.
        let year = if month > 2 { year } else { year.checked_sub(1)? };
        let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day.checked_sub(1)?;
        let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
        let day = Self(days.checked_sub(719_468)?);
        (day.to_string() == text).then_some(day)
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let days = self.0 + 719_468;
        let (era, day_of_era) = (days / 146_097, days % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_the_names_of_the_calendar() {
        for (days, name) in [
            (0, "1970-01-01"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_786, "2026-11-29"),
            (213_503, "2554-07-21"),
        ] {
            assert_eq!(Day(days).to_string(), name);
            assert_eq!(Day::parse(name), Some(Day(days)));
        }
        for name in ["2026-02-30", "1969-12-31", "2026-13-01", "2026-1-1", "x", "2026-11-29-1"] {
            assert_eq!(Day::parse(name), None, "{name}");
        }
    }

    #[test]
    fn a_time_that_cannot_be_believed_is_replaced_by_that_of_arrival() {
        let arrived = 20_786 * DAY_NANOS + 5;
        assert_eq!(Day::of(arrived - DAY_NANOS, arrived), Day(20_785));
        assert_eq!(Day::of(arrived + DAY_NANOS, arrived), Day(20_787));
        for time in [0, arrived + DAY_NANOS + 1, arrived - 30 * DAY_NANOS - 1, u64::MAX] {
            assert_eq!(Day::of(time, arrived), Day(20_786), "{time}");
        }
    }
}
