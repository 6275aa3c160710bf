//! Drafts copied from the context: what came after the longest earlier occurrence of its end.

/// The longest end of the context that is looked for.
const LONGEST: usize = 8;
/// The shortest.
const SHORTEST: usize = 2;

/// A place where the end of the context has stood before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Match {
    /// Tokens that agree, 2 to 8.
    pub(super) length: usize,
    /// The index of the token that came after them.
    next: usize,
}

/// The longest match, of equals the latest. Looks at every token once: microseconds for thousands of them.
pub(super) fn find(ids: &[u32]) -> Option<Match> {
    let last = ids.len().checked_sub(1)?;
    let mut best: Option<Match> = None;
    for next in (1..=last).rev() {
        if ids[next - 1] != ids[last] {
            continue;
        }
        let pairs = ids[..next].iter().rev().zip(ids.iter().rev());
        let length = pairs.take(LONGEST).take_while(|(a, b)| a == b).count();
        if length >= SHORTEST && best.is_none_or(|best| length > best.length) {
            best = Some(Match { length, next });
            if length == LONGEST {
                break;
            }
        }
    }
    best
}

/// The `n` tokens that come after `found` if the text goes on as it did; where that reaches the end of the context, it
/// goes on with the draft.
pub(super) fn copy(ids: &[u32], found: Match, n: usize) -> Vec<u32> {
    let mut draft: Vec<u32> = Vec::with_capacity(n);
    for i in 0..n {
        let at = found.next + i;
        draft.push(if at < ids.len() { ids[at] } else { draft[at - ids.len()] });
    }
    draft
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drafted(ids: &[u32], n: usize) -> Option<(usize, Vec<u32>)> {
        find(ids).map(|found| (found.length, copy(ids, found, n)))
    }

    #[test]
    fn the_longest_match_then_the_latest() {
        assert_eq!(drafted(&[], 3), None);
        assert_eq!(drafted(&[1], 3), None);
        // One equal token is not enough.
        assert_eq!(drafted(&[1, 5, 6, 1], 3), None);
        assert_eq!(drafted(&[1, 2, 7, 8, 9, 1, 2], 3), Some((2, vec![7, 8, 9])));
        // Three agree at the beginning, two later on.
        assert_eq!(drafted(&[3, 1, 2, 7, 0, 1, 2, 9, 3, 1, 2], 2), Some((3, vec![7, 0])));
        // Twice the same length: the later one.
        assert_eq!(drafted(&[1, 2, 7, 1, 2, 9, 1, 2], 1), Some((2, vec![9])));
    }

    #[test]
    fn a_period_goes_on_beyond_the_context() {
        assert_eq!(drafted(&[4, 5, 6, 4, 5, 6, 4, 5], 7), Some((5, vec![6, 4, 5, 6, 4, 5, 6])));
        assert_eq!(drafted(&[9; 20], 4), Some((8, vec![9; 4])));
    }
}
