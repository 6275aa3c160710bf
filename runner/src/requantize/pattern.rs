//! Patterns for tensor names.

/// Whether the whole of `name` fits `pattern`: `*` is any text, `?` any one character, any other character itself.
pub(super) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // The position in the pattern after the last star, and the position in the name that was tried for it.
    let mut star = None;
    while n < name.len() {
        if pattern.get(p) == Some(&'*') {
            p += 1;
            star = Some((p, n));
        } else if pattern.get(p).is_some_and(|&c| c == '?' || c == name[n]) {
            (p, n) = (p + 1, n + 1);
        } else if let Some((after, tried)) = star {
            // The star takes one character more. An earlier star never has to: it stopped at the first fit.
            (p, n) = (after, tried + 1);
            star = Some((after, n));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(|&c| c == '*')
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_and_question_marks() {
        let name = "blk.12.attn_q.weight";
        for pattern in [
            "*",
            "**",
            name,
            "blk.*",
            "*.weight",
            "blk.*.attn_?.weight",
            "*q*t",
            "blk.??.*",
            "*12*",
            "*weight*",
        ] {
            assert!(matches(pattern, name), "{pattern}");
        }
        for pattern in ["", "blk", "weight", "*.bias", "blk.?.*", "*attn_??.*", "BLK.*", "*weight?", "?"] {
            assert!(!matches(pattern, name), "{pattern}");
        }
        assert!(matches("", "") && matches("*", "") && !matches("?", ""));
        assert!(matches("a*ab", "aaab") && matches("?*?", "éé") && !matches("?*?", "é"));
    }
}
