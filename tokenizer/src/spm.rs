//! SentencePiece-style BPE (`llama`): merges in order of the merged token's score.
//!
//! The text starts as one symbol a character. As long as two neighbours
//! together are a token, the pair whose token has the highest score, the
//! leftmost of equals, becomes one symbol. A heap holds the candidate pairs, so
//! a text of n characters takes O(n log n). A character that is no token is
//! written as byte tokens, or, in vocabularies without them, as the unknown token.
//!
//! This is not the merge list of the `tokenizers` crate in another guise: pairs
//! of equal score go by position there is no rank for, and a pair may merge
//! whose sides are not tokens themselves.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::vocab::{TokenKind, Vocab};
use super::{TokenizerError, TokenizerSpec, bytes};

/// A SentencePiece-style BPE model.
#[derive(Debug)]
pub(crate) struct SentencePiece {
    scores: Vec<f32>,
    byte_ids: [Option<u32>; 256],
    /// Bytes of the longest token: no pair longer than that needs a look-up.
    longest: usize,
    add_space_prefix: bool,
}

/// A run of characters, in a doubly linked list. An absorbed symbol has `len` 0.
#[derive(Clone, Copy)]
struct Symbol {
    start: usize,
    len: usize,
    prev: usize,
    next: usize,
}

/// Marks an end of the list.
const END: usize = usize::MAX;

/// Two neighbours that together are a token.
struct Pair {
    score: f32,
    left: usize,
    right: usize,
    /// Bytes of the two when the pair was found: another sum means it is out of date.
    len: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left)).then(self.len.cmp(&other.len))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Pair {}

impl SentencePiece {
    /// Checks the scores.
    ///
    /// # Errors
    /// [`TokenizerError::TableLength`], [`TokenizerError::Score`].
    pub(crate) fn new(spec: &TokenizerSpec, vocab: &Vocab) -> Result<Self, TokenizerError> {
        if spec.scores.len() != vocab.len() {
            return Err(TokenizerError::TableLength {
                table: "scores",
                expected: vocab.len(),
                got: spec.scores.len(),
            });
        }
        if let Some(id) = spec.scores.iter().position(|s| s.is_nan()) {
            return Err(TokenizerError::Score { id: id as u32, got: spec.scores[id] });
        }
        let mut byte_ids = [None; 256];
        for (id, text) in vocab.iter().filter(|&(id, _)| vocab.kind(id) == Some(TokenKind::Byte)) {
            if let Some(byte) = bytes::parse_byte_token(text) {
                byte_ids[usize::from(byte)] = Some(id);
            }
        }
        Ok(Self {
            // Adding 0 turns -0 into 0, which total_cmp would tell apart.
            scores: spec.scores.iter().map(|s| s + 0.0).collect(),
            byte_ids,
            longest: vocab.iter().map(|(_, text)| text.len()).max().unwrap_or(0),
            add_space_prefix: spec.add_space_prefix.unwrap_or(true),
        })
    }

    /// Whether a text gets a space in front, at its start and after each whole-string token.
    pub(crate) fn add_space_prefix(&self) -> bool {
        self.add_space_prefix
    }

    /// Appends the tokens of a text in which no whole-string tokens are looked for.
    ///
    /// `prefix` asks for a space in front, if the model uses one.
    ///
    /// # Errors
    /// [`TokenizerError::Unencodable`].
    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        text: &str,
        prefix: bool,
        out: &mut Vec<u32>,
    ) -> Result<(), TokenizerError> {
        let mut marked = String::with_capacity(text.len() + 3);
        if prefix && self.add_space_prefix {
            marked.push(bytes::SPACE_MARK);
        }
        marked.extend(text.chars().map(|c| if c == ' ' { bytes::SPACE_MARK } else { c }));

        let symbols = self.merge(vocab, &marked);
        let mut at = if symbols.is_empty() { END } else { 0 };
        while at != END {
            let Symbol { start, len, next, .. } = symbols[at];
            self.write(vocab, &marked[start..start + len], out)?;
            at = next;
        }
        Ok(())
    }

    /// The symbols left when no pair of neighbours is a token.
    fn merge(&self, vocab: &Vocab, text: &str) -> Vec<Symbol> {
        let mut symbols: Vec<Symbol> = text
            .char_indices()
            .enumerate()
            .map(|(i, (start, c))| Symbol { start, len: c.len_utf8(), prev: i.wrapping_sub(1), next: i + 1 })
            .collect();
        if let Some(last) = symbols.last_mut() {
            last.next = END;
        }
        let mut pairs: BinaryHeap<Pair> =
            (1..symbols.len()).filter_map(|i| self.pair(vocab, text, &symbols, i - 1, i)).collect();
        while let Some(pair) = pairs.pop() {
            let (left, right) = (symbols[pair.left], symbols[pair.right]);
            if left.len == 0 || right.len == 0 || left.len + right.len != pair.len {
                continue;
            }
            symbols[pair.left].len = pair.len;
            symbols[pair.left].next = right.next;
            symbols[pair.right].len = 0;
            if right.next != END {
                symbols[right.next].prev = pair.left;
            }
            pairs.extend(self.pair(vocab, text, &symbols, left.prev, pair.left));
            pairs.extend(self.pair(vocab, text, &symbols, pair.left, right.next));
        }
        symbols
    }

    /// The pair of two neighbours, if together they are a token.
    fn pair(&self, vocab: &Vocab, text: &str, symbols: &[Symbol], left: usize, right: usize) -> Option<Pair> {
        if left == END || right == END {
            return None;
        }
        let (start, len) = (symbols[left].start, symbols[left].len + symbols[right].len);
        if len > self.longest {
            return None;
        }
        let id = vocab.plain_id(&text[start..start + len])?;
        Some(Pair { score: self.scores[id as usize], left, right, len })
    }

    /// Writes one symbol.
    fn write(&self, vocab: &Vocab, symbol: &str, out: &mut Vec<u32>) -> Result<(), TokenizerError> {
        if let Some(id) = vocab.plain_id(symbol) {
            out.push(id);
        } else if let Some(ids) =
            symbol.bytes().map(|b| self.byte_ids[usize::from(b)]).collect::<Option<Vec<u32>>>()
        {
            out.extend(ids);
        } else {
            let got = symbol.chars().next().unwrap_or(char::REPLACEMENT_CHARACTER);
            out.push(vocab.special.unk.ok_or(TokenizerError::Unencodable { got })?);
        }
        Ok(())
    }
}
