//! Bytes as text: the byte-level alphabet of GPT-2 and the byte tokens of SentencePiece.
//!
//! GPT-2 writes each byte as one printable character, so that a vocabulary of
//! arbitrary bytes is a list of readable strings: `!` to `~`, `U+A1` to `U+AC`
//! and `U+AE` to `U+FF` stand for themselves, the other 68 bytes, in order, for
//! `U+100` and on (a space is `U+120`).
//! SentencePiece writes a byte that has no token of its own as `<0x0A>`.

use std::sync::LazyLock;

/// What SentencePiece writes for a space.
pub(crate) const SPACE_MARK: char = '\u{2581}';

/// The character for each byte.
static ALPHABET: LazyLock<[char; 256]> = LazyLock::new(|| {
    let mut others = '\u{100}'..;
    std::array::from_fn(|b| match b as u8 {
        b @ (b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff) => char::from(b),
        // The range holds far more than the 68 characters needed.
        _ => others.next().unwrap_or(char::REPLACEMENT_CHARACTER),
    })
});

/// The byte for each character below U+0144, the end of the alphabet.
static BYTES: LazyLock<[Option<u8>; 0x144]> = LazyLock::new(|| {
    let mut table = [None; 0x144];
    for (b, &c) in (0..=255_u8).zip(ALPHABET.iter()) {
        table[c as usize] = Some(b);
    }
    table
});

/// The character that stands for a byte.
pub(crate) fn encode(byte: u8) -> char {
    ALPHABET[usize::from(byte)]
}

/// Appends the bytes of a byte-level text; a text with any other character stands for itself.
pub(crate) fn decode_into(text: &str, out: &mut Vec<u8>) {
    let start = out.len();
    for c in text.chars() {
        match BYTES.get(c as usize).copied().flatten() {
            Some(b) => out.push(b),
            None => {
                out.truncate(start);
                out.extend_from_slice(text.as_bytes());
                return;
            }
        }
    }
}

/// The byte of `<0x00>` to `<0xFF>`.
pub(crate) fn parse_byte_token(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    let digits = hex.len() == 2 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    if digits { u8::from_str_radix(hex, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_characters() {
        for (byte, c) in [(b' ', 'Ġ'), (b'\n', 'Ċ'), (b'\t', 'ĉ'), (0, 'Ā'), (0x7f, 'ġ'), (0xad, '\u{143}')]
        {
            assert_eq!(encode(byte), c);
        }
    }

    #[test]
    fn the_alphabet_is_a_bijection() {
        for byte in 0..=255 {
            let mut out = Vec::new();
            decode_into(&encode(byte).to_string(), &mut out);
            assert_eq!(out, [byte]);
        }
    }

    #[test]
    fn a_text_outside_of_the_alphabet_stands_for_itself() {
        let mut out = b"x".to_vec();
        decode_into("Ġa b", &mut out);
        assert_eq!(out, "xĠa b".as_bytes());
    }

    #[test]
    fn byte_tokens() {
        assert_eq!(parse_byte_token("<0x0A>"), Some(10));
        for bad in ["<0xA>", "<0x0AA>", "<0x+A>", "0x0A", "<0x0G>", ""] {
            assert_eq!(parse_byte_token(bad), None, "{bad}");
        }
    }
}
