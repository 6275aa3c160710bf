//! Lists and numbers of bytes in messages.

use std::fmt;

/// Shows a number of bytes as people say it: `512 B`, `3.4 KiB`, `93.8 MiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HumanBytes(pub(crate) u64);

impl fmt::Display for HumanBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
        if self.0 < 1024 {
            return f.pad(&format!("{} B", self.0));
        }
        let mut value = self.0 as f64 / 1024.0;
        let mut unit = 0;
        // 1023.95 would be shown as "1024.0".
        while value >= 1023.95 && unit + 1 < UNITS.len() {
            value /= 1024.0;
            unit += 1;
        }
        f.pad(&format!("{value:.1} {}", UNITS[unit]))
    }
}

/// A list for a sentence: `a`, `a or b`, `a, b or c`.
pub(crate) fn either(words: impl IntoIterator<Item = impl Into<String>>) -> String {
    list(words, "or")
}

/// A list for a sentence: `a`, `a and b`, `a, b and c`.
pub(crate) fn both(words: impl IntoIterator<Item = impl Into<String>>) -> String {
    list(words, "and")
}

fn list(words: impl IntoIterator<Item = impl Into<String>>, last: &str) -> String {
    let words: Vec<String> = words.into_iter().map(Into::into).collect();
    match words.split_last() {
        Some((end, before)) if !before.is_empty() => format!("{} {last} {end}", before.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!(either(Vec::<String>::new()), "");
        assert_eq!(either(["a"]), "a");
        assert_eq!(both(["a", "b"]), "a and b");
        assert_eq!(either(["a", "b", "c"]), "a, b or c");
    }

    #[test]
    fn human_sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1536, "1.5 KiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (98_362_432, "93.8 MiB"),
            (u64::MAX, "16384.0 PiB"),
        ] {
            assert_eq!(HumanBytes(bytes).to_string(), text);
        }
    }
}
