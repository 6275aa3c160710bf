//! `strftime_now`: the date and time in a prompt, in UTC and English.

use std::time::SystemTime;

use chrono::DateTime;
use chrono::format::{Item, StrftimeItems};

/// The longest format, in bytes. A directive of two bytes writes up to 24, which no one has charged for.
const MAX_FORMAT: usize = 256;

/// `time` as `format` says, with the directives of C's and Python's `strftime`. A time before 1970 is taken as 1970.
///
/// # Errors
/// A sentence that names the format, if it has a directive that there is not, or its length, if it is too long.
pub(super) fn format(time: SystemTime, format: &str) -> Result<String, String> {
    if format.len() > MAX_FORMAT {
        let got = format.len();
        return Err(format!("strftime_now: a format of {got} bytes, expected at most {MAX_FORMAT}"));
    }
    let items: Vec<Item<'_>> = StrftimeItems::new(format).collect();
    if items.contains(&Item::Error) {
        return Err(format!("strftime_now: {format:?} has a directive that is not available"));
    }
    let since_1970 = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let seconds = i64::try_from(since_1970.as_secs()).ok();
    let time = seconds.and_then(|seconds| DateTime::from_timestamp(seconds, since_1970.subsec_nanos()));
    let time = time.ok_or_else(|| format!("strftime_now: {since_1970:?} after 1970 is too late"))?;
    Ok(time.format_with_items(items.into_iter()).to_string())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

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
        let error = format(UNIX_EPOCH, "%Y %Q").unwrap_err();
        assert_eq!(error, r#"strftime_now: "%Y %Q" has a directive that is not available"#);
        assert!(format(UNIX_EPOCH, "%").is_err());
        let error = format(UNIX_EPOCH, &"%A".repeat(200)).unwrap_err();
        assert_eq!(error, "strftime_now: a format of 400 bytes, expected at most 256");
    }
}
