//! Descriptions that do not make a tokenizer, streaming, and properties that need no real vocabulary.
#![allow(clippy::unwrap_used, reason = "an error or a missing value is what fails a test")]

use halfbyte_gguf::{Metadata, StringTable};
use halfbyte_tokenizer::{Special, Tokenizer, TokenizerSpec};

/// Every byte as a token after one control token, with merges for `th` and `the`.
fn bytes_spec() -> TokenizerSpec {
    let mut tokens = vec!["<|end|>".to_owned()];
    // The 68 bytes that do not stand for themselves, in order, then U+0100 and on.
    let own = |b: &u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    tokens.extend((0..=255_u8).filter(own).map(|b| char::from(b).to_string()));
    tokens.extend(('\u{100}'..='\u{143}').map(String::from));
    assert_eq!(tokens.len(), 257);
    tokens.extend(["th", "the"].map(String::from));
    let token_types = std::iter::once(3).chain(std::iter::repeat_n(1, 258)).collect();
    TokenizerSpec {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens,
        token_types,
        merges: vec!["t h".into(), "th e".into()],
        ..TokenizerSpec::default()
    }
}

fn error(change: impl FnOnce(&mut TokenizerSpec)) -> String {
    let mut spec = bytes_spec();
    change(&mut spec);
    Tokenizer::new(&spec).unwrap_err().to_string()
}

#[test]
fn errors_name_what_is_wrong() {
    assert_eq!(
        error(|s| s.model = "t5".into()),
        r#"tokenizer model "t5" is not supported: expected one of gpt2, gemma4, llama, bert, huggingface"#
    );
    let unknown = error(|s| s.pre = Some("superbpe".into()));
    assert!(
        unknown.starts_with(r#"pre-tokenizer "superbpe" is not supported: expected one of default, gpt-2, "#)
    );
    assert_eq!(error(|s| s.tokens.clear()), "the vocabulary has 0 tokens: expected 1 to 2147483647");
    assert_eq!(
        error(|s| s.token_types.truncate(3)),
        "token_type has 3 entries: expected 259, one for each token"
    );
    assert_eq!(error(|s| s.token_types[7] = 9), "token 7 has type 9: expected 0 to 6");
    assert_eq!(error(|s| s.token_types[7] = -1), "token 7 has type -1: expected 0 to 6");
    assert_eq!(error(|s| s.token_types[1] = 6), "byte token 1 is \"!\": expected <0x00> to <0xFF>");
    assert_eq!(
        error(|s| s.bos_id = Some(259)),
        "bos_token_id is 259: expected less than 259, the number of tokens"
    );
    assert!(error(|s| s.eot_id = Some(u32::MAX)).starts_with("eot_token_id is 4294967295"));
    assert_eq!(
        error(|s| s.add_bos = Some(true)),
        "the model needs the bos token but names none: expected bos_token_id"
    );
    assert!(error(|s| s.pre = Some("llama-bpe".into())).contains("needs the bos token"));
    assert_eq!(
        error(|s| s.merges.push("th x\u{7}y".into())),
        r#"merge 2 needs the token "x\u{7}y", which the vocabulary does not have"#
    );
    assert_eq!(
        error(|s| s.merges.push("a b".into())),
        r#"merge 2 needs the token "ab", which the vocabulary does not have"#
    );
    for bad in ["", "ab", "ab ", " ", "  "] {
        let text = error(|s| s.merges.push(bad.into()));
        assert_eq!(text, format!("merge 2 is {bad:?}: expected two tokens with a space between"));
    }
    let llama = |s: &mut TokenizerSpec| {
        s.model = "llama".into();
        s.scores = vec![0.0; 259];
    };
    assert_eq!(
        error(|s| {
            llama(s);
            s.scores.pop();
        }),
        "scores has 258 entries: expected 259, one for each token"
    );
    assert_eq!(
        error(|s| {
            llama(s);
            s.scores[5] = f32::NAN;
        }),
        "token 5 has score NaN: expected a number"
    );
}

/// A vocabulary that can be used, with something to be told.
#[test]
fn warnings_say_what_is_odd_and_what_was_made_of_it() {
    let plain = Tokenizer::new(&bytes_spec()).unwrap();
    assert!(plain.warnings().is_empty());

    let mut unnamed = bytes_spec();
    unnamed.pre = None;
    let tokenizer = Tokenizer::new(&unnamed).unwrap();
    assert_eq!(tokenizer.warnings().len(), 1);
    assert!(
        tokenizer.warnings()[0].starts_with("the file does not name its pre-tokenizer (tokenizer.ggml.pre)")
    );
    unnamed.pre = Some("default".into());
    let named = Tokenizer::new(&unnamed).unwrap();
    assert!(named.warnings().is_empty());
    for text in ["the 12345 (the)!", "a  b"] {
        let ids = |tokenizer: &Tokenizer| tokenizer.encode(text, Special::Off).unwrap();
        assert_eq!(ids(&tokenizer), ids(&named));
    }

    let mut twice = bytes_spec();
    twice.tokens.extend(["th", "the"].map(String::from));
    twice.token_types.extend([1, 1]);
    let tokenizer = Tokenizer::new(&twice).unwrap();
    assert_eq!(
        tokenizer.warnings(),
        [
            r#"the token "th" stands twice in the vocabulary, as 257 and as 259, and so do 1 more; texts get the first id"#
        ]
    );
    assert_eq!(tokenizer.encode("the", Special::Off).unwrap(), [258]);
    assert_eq!(tokenizer.token_id("th"), Some(257));
    assert_eq!(tokenizer.decode(&[259, 260], Special::Off).unwrap(), "ththe");

    let mut normal = bytes_spec();
    normal.tokens.extend(["<|im_start|>", "<|other|>"].map(String::from));
    normal.token_types.extend([1, 1]);
    normal.chat_template = Some("{{ '<|im_start|>' + messages[0].content }}".into());
    let tokenizer = Tokenizer::new(&normal).unwrap();
    assert_eq!(tokenizer.warnings().len(), 1);
    assert!(tokenizer.warnings()[0].contains(r#"writes "<|im_start|>", which the file calls normal"#));
    assert_eq!(tokenizer.encode("<|im_start|>", Special::On).unwrap(), [259]);
    assert!(!tokenizer.encode("<|im_start|>", Special::Off).unwrap().contains(&259));
    // The template does not write this one.
    assert!(!tokenizer.encode("<|other|>", Special::On).unwrap().contains(&260));
}

#[test]
fn metadata_of_the_wrong_type_or_absent() {
    let read =
        |metadata: &Metadata| TokenizerSpec::from_metadata(metadata).map(|_| ()).map_err(|e| e.to_string());
    let mut metadata = Metadata::new();
    assert!(read(&metadata).unwrap_err().contains("tokenizer.ggml.model"));
    metadata.set("tokenizer.ggml.model", "gpt2");
    metadata.set("tokenizer.ggml.tokens", ["a"].into_iter().collect::<StringTable>());
    assert!(read(&metadata).unwrap_err().contains(r#""tokenizer.ggml.merges" is missing"#));
    metadata.set("tokenizer.ggml.merges", StringTable::default());
    assert_eq!(read(&metadata), Ok(()));
    metadata.set("tokenizer.ggml.bos_token_id", "1");
    assert!(read(&metadata).unwrap_err().contains("bos_token_id"));
    metadata.set("tokenizer.ggml.bos_token_id", 1_u32);
    metadata.set("tokenizer.ggml.token_type", vec![1.0_f32]);
    assert!(read(&metadata).unwrap_err().contains("token_type"));
}

#[test]
fn a_merge_into_a_control_token_is_left_out() {
    let mut spec = bytes_spec();
    spec.tokens.extend(["</", "s>", "</s>"].map(String::from));
    spec.token_types.extend([1, 1, 1]);
    spec.merges.extend(["< /", "s >", "</ s>"].map(String::from));
    let tokenizer = Tokenizer::new(&spec).unwrap();
    // Called normal by the file, but it ends replies: a user's text stops one merge short of it.
    assert!(tokenizer.is_eog(261) && tokenizer.is_control(261));
    // ">" after "s" is in another piece, so only "</" is merged.
    let typed = tokenizer.encode("</s>", Special::Off).unwrap();
    assert!(!typed.contains(&261), "{typed:?}");
    assert_eq!(tokenizer.decode(&typed, Special::Off).unwrap(), "</s>");
    assert_eq!(tokenizer.encode("</s>", Special::On).unwrap(), [261]);
}

#[test]
fn a_byte_without_a_token_is_left_out_and_merged_across_by_nothing() {
    let mut spec = bytes_spec();
    // The token for byte 1, which is U+0101.
    let at = spec.tokens.iter().position(|t| t == "\u{101}").unwrap();
    spec.tokens[at] = "unrelated".into();
    let tokenizer = Tokenizer::new(&spec).unwrap();
    let encode = |text| tokenizer.encode(text, Special::Off).unwrap();
    assert_eq!(encode("!\u{1}!"), [encode("!"), encode("!")].concat());
    assert!(encode("\u{1}").is_empty());
}

#[test]
fn trusted_ranges() {
    let tokenizer = Tokenizer::new(&bytes_spec()).unwrap();
    let text = "<|end|><|end|>";
    let count = |trusted: &[std::ops::Range<usize>]| {
        let ids = tokenizer.encode_trusted(text, trusted).unwrap();
        assert_eq!(tokenizer.decode(&ids, Special::On).unwrap(), text);
        ids.iter().filter(|&&id| id == 0).count()
    };
    let whole = 0..14;
    assert_eq!(count(&[]), 0);
    assert_eq!(count(std::slice::from_ref(&whole)), 2);
    assert_eq!(count(std::slice::from_ref(&(7..14))), 1);
    assert_eq!(count(std::slice::from_ref(&(1..14))), 1);
    assert_eq!(count(std::slice::from_ref(&(1..13))), 0);
    // Two ranges that touch are one.
    assert_eq!(count(&[0..3, 3..9]), 1);
    assert_eq!(count(&[0..3, 4..9]), 0);
}

/// A small generator, so that the strings are the same everywhere.
struct XorShift(u64);

impl XorShift {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

#[test]
fn every_text_comes_back() {
    let tokenizer = Tokenizer::new(&bytes_spec()).unwrap();
    let seed = 0x5eed_0001;
    let mut random = XorShift(seed);
    for _ in 0..500 {
        let text: String = (0..random.below(20))
            .filter_map(|_| match random.below(3) {
                0 => char::from_u32(random.below(0x11_0000) as u32),
                1 => char::from_u32(random.below(128) as u32),
                _ => "the '\r\n\u{a0}".chars().nth(random.below(8) as usize),
            })
            .collect();
        let ids = tokenizer.encode(&text, Special::Off).unwrap();
        assert_eq!(tokenizer.decode(&ids, Special::Off).unwrap(), text, "seed {seed:#x}");
    }
}

/// Any ids at all, a token a byte: what streams out is what `from_utf8_lossy` makes of the bytes.
#[test]
fn streaming_writes_whole_characters() {
    let tokenizer = Tokenizer::new(&bytes_spec()).unwrap();
    let id =
        |byte: u8| (1..257).find(|&id| tokenizer.piece_bytes(id, Special::Off).unwrap() == [byte]).unwrap();
    let id_of: Vec<u32> = (0..=255).map(id).collect();
    let seed = 0x5eed_0002;
    let mut random = XorShift(seed);
    for round in 0..2000 {
        let bytes: Vec<u8> = (0..random.below(12))
            .flat_map(|_| match random.below(4) {
                0 => vec![random.below(256) as u8],
                1 => [0xc3, 0xe2, 0xf0, 0x9f, 0x80, 0xed, 0xa0][random.below(7) as usize..][..1].to_vec(),
                2 => "é€😀".as_bytes()[random.below(9) as usize..].to_vec(),
                _ => "日a".as_bytes().to_vec(),
            })
            .collect();
        let mut decoder = tokenizer.text_decoder();
        let mut text = String::new();
        for &byte in &bytes {
            text.push_str(decoder.push(id_of[usize::from(byte)]).unwrap());
        }
        text.push_str(decoder.finish());
        assert_eq!(text, String::from_utf8_lossy(&bytes), "seed {seed:#x} round {round}: {bytes:x?}");
    }
}

#[test]
fn streaming_holds_back_a_character_and_shows_control_tokens_on_request() {
    let tokenizer = Tokenizer::new(&bytes_spec()).unwrap();
    let ids = tokenizer.encode("😀", Special::Off).unwrap();
    let mut decoder = tokenizer.continuation_decoder();
    let parts: Vec<String> = ids.iter().map(|&id| decoder.push(id).unwrap().to_owned()).collect();
    assert_eq!(parts, ["", "", "", "😀"]);
    assert_eq!(decoder.push(0).unwrap(), "");
    assert!(decoder.push(u32::MAX).is_err());
    assert_eq!(decoder.finish(), "");
    let mut named = tokenizer.continuation_decoder().with_control_tokens();
    assert_eq!(named.push(0).unwrap(), "<|end|>");
    assert_eq!(named.push(ids[0]).unwrap(), "");
    assert_eq!(named.finish(), "\u{fffd}");
}
