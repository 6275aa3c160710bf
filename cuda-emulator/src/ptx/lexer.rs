//! Tokens: words (identifiers, numbers, directives and opcodes with their dots), strings, punctuation.

use crate::module::PtxError;

/// A piece of the text and the line it stands on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Token<'a> {
    pub(super) text: &'a str,
    pub(super) line: u32,
}

/// Splits a text into tokens. A string token keeps its opening quote and loses the closing one.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, PtxError> {
    let bytes = text.as_bytes();
    let mut tokens = Vec::new();
    let (mut at, mut line) = (0, 1);
    while at < bytes.len() {
        let start = at;
        match bytes[at] {
            b'\n' => {
                line += 1;
                at += 1;
                continue;
            }
            c if c.is_ascii_whitespace() || c == 0 => {
                at += 1;
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                at += bytes[at..].iter().position(|&c| c == b'\n').unwrap_or(bytes.len() - at);
                continue;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let Some(length) = text[at + 2..].find("*/") else {
                    return Err(PtxError { line, message: "a comment that does not end".into() });
                };
                let end = at + 2 + length + 2;
                line += newlines(&bytes[at..end]);
                at = end;
                continue;
            }
            b'"' => {
                let Some(length) = bytes[at + 1..].iter().position(|&c| c == b'"') else {
                    return Err(PtxError { line, message: "a string that does not end".into() });
                };
                at += 1 + length;
                tokens.push(Token { text: &text[start..at], line });
                line += newlines(&bytes[start..at]);
                at += 1;
                continue;
            }
            c if is_word(c) => {
                at += 1;
                while at < bytes.len() {
                    // Directives may stand without spaces between: `.reg.b32`.
                    if c == b'.' && bytes[at] == b'.' {
                        break;
                    } else if is_word(bytes[at]) {
                        at += 1;
                    } else if bytes[at..].starts_with(b"::") {
                        at += 2;
                    } else {
                        break;
                    }
                }
            }
            c if c.is_ascii() => at += 1,
            c => {
                return Err(PtxError { line, message: format!("byte {c:#04x} is no part of PTX") });
            }
        }
        tokens.push(Token { text: &text[start..at], line });
    }
    Ok(tokens)
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'.' | b'_' | b'$' | b'%')
}

fn newlines(bytes: &[u8]) -> u32 {
    bytes.iter().filter(|&&c| c == b'\n').count() as u32
}
