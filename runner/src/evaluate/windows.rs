//! Cuts a text into windows.

use super::Error;

/// Consecutive tokens that are fed to an empty context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The index in the text of its first token.
    pub start: usize,
    /// One past the index of its last token.
    pub end: usize,
    /// Which of its own tokens, counted from 0, is the first to be scored; those after it are too.
    pub first_scored: usize,
}

/// A rule that cuts a text into windows and says which of their tokens are scored.
///
/// All windows have the same length; what is left at the end of the text is dropped. A window's first token is
/// given, never scored.
///
/// ```text
/// second_half(8)     |0 1 2 3 4[5 6 7]|0 1 2 3 4[5 6 7]|
/// sliding(8, 8)      |0[1 2 3 4 5 6 7]|0[1 2 3 4 5 6 7]|
/// sliding(8, 3)      |0[1 2 3 4 5 6 7]
///                         |0 1 2 3 4[5 6 7]
///                               |0 1 2 3 4[5 6 7]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Windows {
    context: usize,
    /// `None` for the second-half rule.
    stride: Option<usize>,
}

impl Windows {
    /// The rule of llama.cpp's `perplexity`: windows side by side, of which the predictions made at positions
    /// `context / 2 ..= context - 2` are scored, that is tokens `context / 2 + 1 ..= context - 1`: 255 of 512.
    ///
    /// # Errors
    /// [`Error::Context`] for fewer than 3 tokens.
    pub fn second_half(context: usize) -> Result<Self, Error> {
        if context < 3 {
            return Err(Error::Context { got: context, least: 3 });
        }
        Ok(Self { context, stride: None })
    }

    /// Windows that start `stride` tokens apart. The first scores all its tokens but its first; every later one the
    /// `stride` tokens at its end, which no window before it had. With `stride == context` the windows lie side by
    /// side, and each scores all its tokens but its first.
    ///
    /// # Errors
    /// [`Error::Context`] for fewer than 2 tokens, [`Error::Stride`] for a stride of 0 or beyond `context`.
    pub fn sliding(context: usize, stride: usize) -> Result<Self, Error> {
        if context < 2 {
            return Err(Error::Context { got: context, least: 2 });
        }
        if !(1..=context).contains(&stride) {
            return Err(Error::Stride { got: stride, context });
        }
        Ok(Self { context, stride: Some(stride) })
    }

    /// Tokens in a window.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Cuts a text of `tokens` tokens: at least one window, in the text's order.
    ///
    /// # Errors
    /// [`Error::TooShort`] for a text shorter than a window.
    pub fn cut(&self, tokens: usize) -> Result<impl ExactSizeIterator<Item = Window> + use<>, Error> {
        let Self { context, stride } = *self;
        let Some(spare) = tokens.checked_sub(context) else {
            return Err(Error::TooShort { got: tokens, context });
        };
        let step = stride.unwrap_or(context);
        let first_scored = move |i: usize| match stride {
            None => context / 2 + 1,
            Some(_) if i == 0 => 1,
            Some(stride) => (context - stride).max(1),
        };
        Ok((0..spare / step + 1).map(move |i| Window {
            start: i * step,
            end: i * step + context,
            first_scored: first_scored(i),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(windows: Result<Windows, Error>, tokens: usize) -> Vec<(usize, usize, usize)> {
        let windows = windows.unwrap().cut(tokens).unwrap();
        let n = windows.len();
        let windows: Vec<_> = windows.map(|w| (w.start, w.end, w.first_scored)).collect();
        assert_eq!(windows.len(), n);
        windows
    }

    #[test]
    fn second_halves() {
        assert_eq!(cut(Windows::second_half(8), 8), [(0, 8, 5)]);
        assert_eq!(cut(Windows::second_half(8), 23), [(0, 8, 5), (8, 16, 5)]);
        assert_eq!(cut(Windows::second_half(8), 24), [(0, 8, 5), (8, 16, 5), (16, 24, 5)]);
        // 512 - 512 / 2 - 1 = 255 scored.
        assert_eq!(cut(Windows::second_half(512), 1024), [(0, 512, 257), (512, 1024, 257)]);
        assert_eq!(cut(Windows::second_half(7), 7), [(0, 7, 4)]);
        assert_eq!(cut(Windows::second_half(3), 5), [(0, 3, 2)]);
    }

    #[test]
    fn windows_side_by_side() {
        assert_eq!(cut(Windows::sliding(8, 8), 17), [(0, 8, 1), (8, 16, 1)]);
        assert_eq!(cut(Windows::sliding(2, 2), 4), [(0, 2, 1), (2, 4, 1)]);
    }

    #[test]
    fn overlapping_windows() {
        assert_eq!(cut(Windows::sliding(8, 3), 16), [(0, 8, 1), (3, 11, 5), (6, 14, 5)]);
        assert_eq!(cut(Windows::sliding(4, 1), 6), [(0, 4, 1), (1, 5, 3), (2, 6, 3)]);
        // A stride one short of the window: its first token was scored by the window before.
        assert_eq!(cut(Windows::sliding(4, 3), 10), [(0, 4, 1), (3, 7, 1), (6, 10, 1)]);
    }

    #[test]
    fn with_overlap_every_token_but_the_first_is_scored_once() {
        for context in 2..12 {
            for stride in 1..context {
                let windows = cut(Windows::sliding(context, stride), 40);
                let scored: Vec<usize> =
                    windows.iter().flat_map(|&(start, end, first)| start + first..end).collect();
                let last = windows.last().unwrap().1;
                assert_eq!(scored, (1..last).collect::<Vec<_>>(), "context {context}, stride {stride}");
                assert!(40 - last < stride);
            }
        }
    }

    #[test]
    fn errors_name_the_numbers() {
        let text = |error: Result<Windows, Error>| error.unwrap_err().to_string();
        assert_eq!(text(Windows::second_half(2)), "windows of 2 tokens score nothing: at least 3 are needed");
        assert_eq!(text(Windows::sliding(1, 1)), "windows of 1 tokens score nothing: at least 2 are needed");
        for stride in [0, 9, usize::MAX] {
            assert_eq!(
                text(Windows::sliding(8, stride)),
                format!("a stride of {stride}: expected 1 to 8, the tokens in a window")
            );
        }
        for tokens in [0, 7] {
            let error = Windows::second_half(8).unwrap().cut(tokens).err().unwrap();
            assert_eq!(
                error.to_string(),
                format!("the text is {tokens} tokens long, shorter than one window of 8")
            );
        }
    }
}
