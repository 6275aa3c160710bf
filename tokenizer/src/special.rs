//! Cutting a text at the tokens that are matched as whole strings.
//!
//! The longest strings are looked for first, each in all that is still text:
//! llama.cpp's order, which decides when two strings overlap. Control tokens
//! are matched only where every byte lies in a trusted range, so that neither
//! a user's text nor a template's text that runs into it can make one.

use std::ops::Range;

use memchr::memmem;

use super::vocab::{TokenKind, Vocab};

/// A part of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Fragment {
    /// Bytes still to be tokenized.
    Text(Range<usize>),
    /// A token matched as a whole.
    Token(u32),
}

/// The tokens to look for.
#[derive(Debug)]
pub(crate) struct SpecialTokens {
    /// Longest first, then by id.
    tokens: Vec<SpecialToken>,
}

#[derive(Debug)]
struct SpecialToken {
    id: u32,
    finder: memmem::Finder<'static>,
    needs_trust: bool,
}

impl SpecialTokens {
    pub(crate) fn new(vocab: &Vocab) -> Self {
        let mut ids: Vec<(u32, &str)> = vocab.iter().filter(|(_, text)| !text.is_empty()).collect();
        ids.retain(|&(id, _)| {
            use TokenKind::{Control, Unknown, UserDefined};
            matches!(vocab.kind(id), Some(Control | Unknown | UserDefined))
        });
        ids.sort_by_key(|&(id, text)| (std::cmp::Reverse(text.len()), id));
        let token = |(id, text): (u32, &str)| SpecialToken {
            id,
            finder: memmem::Finder::new(text.as_bytes()).into_owned(),
            needs_trust: vocab.kind(id) != Some(TokenKind::UserDefined),
        };
        Self { tokens: ids.into_iter().map(token).collect() }
    }

    /// Cuts `text`. `trusted`: sorted, disjoint byte ranges that do not touch.
    pub(crate) fn partition(&self, text: &str, trusted: &[Range<usize>]) -> Vec<Fragment> {
        let mut fragments = Vec::new();
        if !text.is_empty() {
            fragments.push(Fragment::Text(0..text.len()));
        }
        for token in &self.tokens {
            if token.needs_trust && trusted.is_empty() {
                continue;
            }
            if token.finder.find(text.as_bytes()).is_some() {
                fragments = token.cut(text, trusted, &fragments);
            }
        }
        fragments
    }
}

impl SpecialToken {
    fn cut(&self, text: &str, trusted: &[Range<usize>], fragments: &[Fragment]) -> Vec<Fragment> {
        let mut out = Vec::with_capacity(fragments.len() + 2);
        for fragment in fragments {
            let Fragment::Text(range) = fragment else {
                out.push(fragment.clone());
                continue;
            };
            let (mut rest, mut from) = (range.start, range.start);
            while let Some(offset) = self.finder.find(&text.as_bytes()[from..range.end]) {
                let found = from + offset..from + offset + self.finder.needle().len();
                if self.needs_trust && !covered(&found, trusted) {
                    from = found.start + 1;
                    continue;
                }
                if rest < found.start {
                    out.push(Fragment::Text(rest..found.start));
                }
                out.push(Fragment::Token(self.id));
                (rest, from) = (found.end, found.end);
            }
            if rest < range.end {
                out.push(Fragment::Text(rest..range.end));
            }
        }
        out
    }
}

/// Whether one of the ranges holds all of `inner`.
pub(crate) fn covered(inner: &Range<usize>, ranges: &[Range<usize>]) -> bool {
    let after = ranges.partition_point(|r| r.start <= inner.start);
    after > 0 && inner.end <= ranges[after - 1].end
}
