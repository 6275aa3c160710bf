//! `strftime` for the few directives that templates use, in UTC and English.

use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

/// `time` as `format` says: `%Y %y %m %d %e %j %B %b %A %a %H %I %M %S %p %%`.
///
/// A time before 1970 is taken as 1970.
///
/// # Errors
/// A sentence that names the directive that is not in the list.
pub(super) fn format(time: SystemTime, format: &str) -> Result<String, String> {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let (month_name, day_name) = (MONTHS[month as usize - 1], DAYS[((days + 4) % 7) as usize]);
    let mut out = String::new();
    let mut chars = format.chars();
    while let Some(c) = chars.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        let written = match chars.next() {
            Some('Y') => write!(out, "{year}"),
            Some('y') => write!(out, "{:02}", year % 100),
            Some('m') => write!(out, "{month:02}"),
            Some('d') => write!(out, "{day:02}"),
            Some('e') => write!(out, "{day:2}"),
            Some('j') => write!(out, "{:03}", day_of_year(days, year)),
            Some('B') => out.write_str(month_name),
            Some('b') => out.write_str(&month_name[..3]),
            Some('A') => out.write_str(day_name),
            Some('a') => out.write_str(&day_name[..3]),
            Some('H') => write!(out, "{hour:02}"),
            Some('I') => write!(out, "{:02}", (hour + 11) % 12 + 1),
            Some('M') => write!(out, "{minute:02}"),
            Some('S') => write!(out, "{second:02}"),
            Some('p') => out.write_str(if hour < 12 { "AM" } else { "PM" }),
            Some('%') => out.write_str("%"),
            Some(other) => return Err(format!("strftime_now: the directive %{other} is not available")),
            None => return Err("strftime_now: the format ends with %".to_owned()),
        };
        // Writing to a string does not fail.
        written.map_err(|e| e.to_string())?;
    }
    Ok(out)
}

/// Year, month and day of a number of days since 1970, in the Gregorian calendar.
///
/// Years are counted from 1 March, so that the leap day is the last of its
/// year, and 400-year cycles of 146,097 days from the year 0.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (cycle, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (400 * cycle + year + carry, month, day_of_month)
}

/// The day of the year, 1 for 1 January.
fn day_of_year(days: u64, year: u64) -> u64 {
    let y = year - 1;
    let before = 365 * y + y / 4 - y / 100 + y / 400;
    // 1970-01-01 is day 719,162 after 0001-01-01.
    days + 719_162 - before + 1
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn known_times() {
        // Seconds and texts as `date -u -d @N` gives them.
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 Thu 001 12 AM"),
            (951_782_400, "2000-02-29 00:00:00 Tue 060 12 AM"),
            (1_709_208_000, "2024-02-29 12:00:00 Thu 060 12 PM"),
            (1_735_689_599, "2024-12-31 23:59:59 Tue 366 11 PM"),
            (4_107_542_400, "2100-03-01 00:00:00 Mon 060 12 AM"),
        ] {
            let time = UNIX_EPOCH + Duration::from_secs(seconds);
            assert_eq!(format(time, "%Y-%m-%d %H:%M:%S %a %j %I %p").unwrap(), text);
        }
        let time = UNIX_EPOCH + Duration::from_secs(1_709_208_000);
        assert_eq!(
            format(time, "%d %b %Y, %A %e %B %y 100%%").unwrap(),
            "29 Feb 2024, Thursday 29 February 24 100%"
        );
    }

    #[test]
    fn unknown_directives_are_named() {
        assert_eq!(format(UNIX_EPOCH, "%Q").unwrap_err(), "strftime_now: the directive %Q is not available");
        assert!(format(UNIX_EPOCH, "%").is_err());
    }
}
