//! RFC 3339 timestamps to Unix nanoseconds and back, UTC.

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// Unix nanoseconds of `2026-11-29T12:58:39.690624Z` (or with a `+01:00` offset); `None` when it
/// is no such text or lies before 1970 or after 2554.
pub fn parse(text: &str) -> Option<u64> {
    let bytes = text.as_bytes();
    if bytes.len() < 20 || !text.is_ascii() {
        return None;
    }
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = &bytes[from..to];
        digits.iter().try_fold(0_i64, |sum, byte| {
            byte.is_ascii_digit().then(|| sum * 10 + i64::from(byte - b'0'))
        })
    };
    let separators = [(4, b'-'), (7, b'-'), (13, b':'), (16, b':')];
    if separators.iter().any(|&(at, byte)| bytes[at] != byte)
        || !matches!(bytes[10], b'T' | b't' | b' ')
    {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 24 || minute > 59 {
        return None;
    }

    let mut at = 19;
    let mut nanos = 0_i128;
    if bytes[at] == b'.' {
        at += 1;
        let mut digits = 0;
        while at < bytes.len() && bytes[at].is_ascii_digit() {
            if digits < 9 {
                nanos = nanos * 10 + i128::from(bytes[at] - b'0');
                digits += 1;
            }
            at += 1;
        }
        nanos *= 10_i128.pow(9 - digits);
    }
    let offset_seconds = match bytes.get(at)? {
        b'Z' | b'z' if at + 1 == bytes.len() => 0,
        sign @ (b'+' | b'-') if at + 6 == bytes.len() && bytes[at + 3] == b':' => {
            let seconds = number(at + 1, at + 3)? * 3600 + number(at + 4, at + 6)? * 60;
            if *sign == b'+' { seconds } else { -seconds }
        }
        _ => return None,
    };

    let seconds = days_from_civil(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second
        - offset_seconds;
    u64::try_from(i128::from(seconds) * NANOS_PER_SECOND + nanos).ok()
}

/// `2026-11-29T12:58:39.690624123Z`.
pub fn to_rfc3339(unix_nanos: u64) -> String {
    let (year, month, day, second_of_day) = civil(unix_nanos);
    format!(
        "{year:04}-{month:02}-{day:02}T{}.{:09}Z",
        clock(second_of_day),
        unix_nanos % 1_000_000_000
    )
}

/// `2026-11-29 12:58:39.690`, for people.
pub fn to_readable(unix_nanos: u64) -> String {
    let (year, month, day, second_of_day) = civil(unix_nanos);
    format!(
        "{year:04}-{month:02}-{day:02} {}.{:03}",
        clock(second_of_day),
        unix_nanos % 1_000_000_000 / 1_000_000
    )
}

fn clock(second_of_day: u64) -> String {
    format!("{:02}:{:02}:{:02}", second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60)
}

fn civil(unix_nanos: u64) -> (i64, i64, i64, u64) {
    let seconds = unix_nanos / 1_000_000_000;
    let (year, month, day) = civil_from_days((seconds / 86_400).cast_signed());
    (year, month, day, seconds % 86_400)
}

/// Days since 1970-01-01 of a proleptic Gregorian date: eras of 400 years, years from March.
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_of_the_reference_is_read_to_the_microsecond() {
        // Checked against `date -u -d @1795957119`.
        assert_eq!(parse("2026-11-29T12:58:39.690624Z"), Some(1_795_957_119_690_624_000));
    }

    #[test]
    fn nanoseconds_and_offsets_are_understood() {
        assert_eq!(parse("1970-01-01T00:00:00.000000001Z"), Some(1));
        assert_eq!(parse("1970-01-01T01:00:00+01:00"), Some(0));
        assert_eq!(parse("2024-02-29T00:00:00Z"), Some(1_709_164_800_000_000_000));
    }

    #[test]
    fn what_is_no_timestamp_is_refused() {
        for text in [
            "",
            "2026-11-29",
            "2026-13-29T12:58:39Z",
            "2026-11-29T12:58:39",
            "1969-12-31T23:59:59Z",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn writing_and_reading_are_inverse() {
        for nanos in
            [0, 1, 951_782_400_000_000_000, 1_795_957_119_690_624_123, 4_102_444_799_999_999_999]
        {
            assert_eq!(parse(&to_rfc3339(nanos)), Some(nanos));
        }
    }
}
