//! Which name stands for which rule.
//!
//! The names are those of GGUF's `tokenizer.ggml.pre`. The expressions are those that the makers published in
//! `tokenizer.json`, where llama.cpp has others only for want of character classes.

/// What a name stands for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Cuts in this order: each one cuts what the one before it left.
    pub(crate) steps: &'static [Step],
    /// Whether a piece that is a token is that token, whatever the merges say.
    pub(crate) whole_pieces: bool,
    /// Whether a prompt starts with the beginning token, where the file does not say.
    pub(crate) add_bos: bool,
    /// Whether a prompt ends with the separator, where the file does not say.
    pub(crate) add_sep: bool,
}

/// One expression. What stands between its matches are pieces, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Each match is a piece.
    Matches(&'static str),
    /// As `Matches`, but a run of white space of two or more leaves its last character to what follows, unless it ends in a
    /// line break and the flag is set: `\s+(?!\S)`.
    Words(&'static str, bool),
}

use Step::{Matches, Words};

const GPT2: Step = Words(r"'(?:[stmd]|re|ve|ll)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+", false);

/// The contractions in either case.
macro_rules! contractions {
    () => {
        r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
    };
}

/// Words that may begin with upper-case letters, then those that may end with lower-case ones, as gpt-4o has them. `$end`: what
/// may follow. `$without`: what is left out of the letters.
macro_rules! cased {
    ($end:expr, $without:expr) => {
        concat!(
            r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}",
            $without,
            r"]*",
            r"[\p{Ll}\p{Lm}\p{Lo}\p{M}",
            $without,
            r"]+",
            $end,
            r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}",
            $without,
            r"]+",
            r"[\p{Ll}\p{Lm}\p{Lo}\p{M}",
            $without,
            r"]*",
            $end
        )
    };
}

const LLAMA3: Step = Words(
    concat!(
        contractions!(),
        r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
    ),
    true,
);
const QWEN2: Step = Words(
    concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"),
    true,
);
const QWEN35: Step = Words(
    concat!(
        contractions!(),
        r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
    ),
    true,
);
const GPT4O: Step = Words(
    concat!(
        cased!(r"(?:'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))?", ""),
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"
    ),
    true,
);
const TEKKEN: Step =
    Words(concat!(cased!("", ""), r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+"), true);
const DEEPSEEK3: Step = Words(
    concat!(
        r"[!-/:-@\[-`{-~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*",
        r"|\s*[\r\n]+|\s+"
    ),
    true,
);
const SEED: Step = Words(
    concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+"),
    true,
);
const BAILING: Step = Words(
    concat!(contractions!(), r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+"),
    true,
);
const CJK: Step = Matches(r"[\u{4e00}-\u{9fa5}\u{3040}-\u{309f}\u{30a0}-\u{30ff}]+");
/// Chinese, Korean and everything between them in the code charts, as the older DeepSeek rules have it.
const CJK_WIDE: Step = Matches(r"[\u{4e00}-\u{9fa5}\u{800}-\u{4e00}\u{ac00}-\u{d7ff}]+");
const DIGIT: Step = Matches(r"\p{N}");
const DIGITS: Step = Matches(r"\p{N}+");
const THREE: Step = Matches(r"[0-9][0-9][0-9]");
const UP_TO_THREE: Step = Matches(r"\p{N}{1,3}");
const LINE_BREAK: Step = Matches(r"[\r\n]");
const PUNCTUATION: Step = Matches(r"[\p{P}$+<=>^~|`]+");
const BLOOM: Step = Matches(r" ?[^(\s|.,!?\u{2026}\u{3002}\u{ff0c}\u{3001}\u{964}\u{6d4}\u{60c})]+");
/// The letters of scripts that have upper and lower case.
const LETTERS: Step = Matches(concat!(
    r"\s?[",
    r"A-Za-z\u{b5}\u{c0}-\u{d6}\u{d8}-\u{f6}\u{f8}-\u{1ba}\u{1bc}-\u{1bf}\u{1c4}-\u{293}\u{295}-\u{2af}",
    r"\u{370}-\u{373}\u{376}\u{377}\u{37b}-\u{37d}\u{37f}\u{386}\u{388}-\u{38a}\u{38c}\u{38e}-\u{3a1}",
    r"\u{3a3}-\u{3f5}\u{3f7}-\u{481}\u{48a}-\u{52f}\u{531}-\u{556}\u{10a0}-\u{10c5}\u{13a0}-\u{13f5}",
    r"\u{13f8}-\u{13fd}\u{1c90}-\u{1cba}\u{1cbd}-\u{1cbf}\u{1d00}-\u{1d2b}\u{1d6b}-\u{1d77}",
    r"\u{1d79}-\u{1d9a}\u{1e00}-\u{1f15}\u{1f18}-\u{1f1d}\u{1f20}-\u{1f45}\u{1f48}-\u{1f4d}",
    r"\u{1f50}-\u{1f57}\u{1f59}\u{1f5b}\u{1f5d}\u{1f5f}-\u{1f7d}\u{1f80}-\u{1fb4}\u{1fb6}-\u{1fbc}\u{1fbe}",
    r"\u{1fc2}-\u{1fc4}\u{1fc6}-\u{1fcc}\u{1fd0}-\u{1fd3}\u{1fd6}-\u{1fdb}\u{1fe0}-\u{1fec}",
    r"\u{1ff2}-\u{1ff4}\u{1ff6}-\u{1ffc}\u{2102}\u{2107}\u{210a}-\u{2113}\u{2115}\u{2119}-\u{211d}\u{2124}",
    r"\u{2126}\u{2128}\u{212a}-\u{212d}\u{212f}-\u{2134}\u{2139}\u{213c}-\u{213f}\u{2145}-\u{2149}\u{214e}",
    r"\u{2183}\u{2184}\u{2c00}-\u{2c7b}\u{2c7e}-\u{2ce4}\u{2ceb}-\u{2cee}\u{2cf2}\u{2cf3}\u{a640}-\u{a66d}",
    r"\u{a680}-\u{a69b}\u{a722}-\u{a76f}\u{a771}-\u{a787}\u{a78b}-\u{a78e}\u{ab70}-\u{abbf}",
    r"\u{fb00}-\u{fb06}\u{fb13}-\u{fb17}\u{ff21}-\u{ff3a}\u{ff41}-\u{ff5a}\u{10400}-\u{1044f}",
    r"\u{104b0}-\u{104d3}\u{104d8}-\u{104fb}\u{10c80}-\u{10cb2}\u{10cc0}-\u{10cf2}\u{118a0}-\u{118df}",
    r"\u{1e900}-\u{1e943}",
    "]+"
));
const MARKS: Step =
    Matches(r"\s?[!-/:-~\u{ff01}-\u{ff0f}\u{ff1a}-\u{ff5e}\u{2018}-\u{201f}\u{3000}-\u{3002}]+");

const fn rule(steps: &'static [Step]) -> Rule {
    Rule { steps, whole_pieces: false, add_bos: false, add_sep: false }
}

const fn whole(rule: Rule, add_bos: bool) -> Rule {
    Rule { whole_pieces: true, add_bos, ..rule }
}

/// What llama.cpp takes for a file that names no rule.
pub(crate) const DEFAULT: Rule = rule(&[Matches(r"[\p{P}$+<=>^~|]+"), GPT2, DIGITS, THREE]);

/// The names of each rule.
pub(crate) const RULES: [(Rule, &[&str]); 23] = [
    (DEFAULT, &["default"]),
    (
        rule(&[GPT2]),
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "trillion",
            "granite-docling",
            "modern-bert",
            "exaone4",
            "mellum",
            "gigachat",
            "a.x-4.0",
            "jina-es",
            "jina-de",
            "jina-v2-es",
            "jina-v2-de",
        ],
    ),
    (Rule { add_sep: true, ..rule(&[GPT2]) }, &["jina-v1-en", "jina-v2-code", "roberta-bpe"]),
    (
        rule(&[DIGIT, GPT2]),
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
    ),
    (
        whole(rule(&[LLAMA3]), true),
        &[
            "llama-bpe",
            "llama3",
            "llama-v3",
            "falcon3",
            "falcon-h1",
            "lfm2",
            "pixtral",
            "midm-2.0",
            "jina-v5-nano",
        ],
    ),
    (rule(&[LLAMA3]), &["smaug-bpe", "dbrx", "chatglm-bpe"]),
    (whole(rule(&[LLAMA3]), false), &["glm4", "glm5"]),
    (
        rule(&[QWEN2]),
        &[
            "qwen2",
            "deepseek-r1-qwen",
            "stablelm2",
            "megrez",
            "hunyuan",
            "solar-open",
            "grok-2",
            "kormo",
            "f2llmv2",
        ],
    ),
    (rule(&[QWEN35]), &["qwen35"]),
    (rule(&[GPT4O]), &["gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"]),
    (whole(rule(&[GPT4O]), false), &["granite-embed-multi-97m"]),
    (whole(rule(&[TEKKEN]), true), &["tekken"]),
    (rule(&[UP_TO_THREE, CJK, DEEPSEEK3]), &["deepseek-v3", "hunyuan-dense", "hy_v4", "joyai-llm"]),
    (rule(&[LINE_BREAK, LETTERS, MARKS, Matches(r"\s+$"), CJK_WIDE, DIGITS]), &["deepseek-llm"]),
    (rule(&[LINE_BREAK, Matches(r"\s?\p{L}+"), Matches(r"\s?\p{P}+"), CJK_WIDE, DIGIT]), &["deepseek-coder"]),
    (rule(&[PUNCTUATION, GPT2, THREE]), &["falcon"]),
    (rule(&[SEED]), &["seed-coder"]),
    (rule(&[BAILING]), &["bailingmoe", "bailingmoe2", "llada-moe"]),
    (rule(&[BLOOM]), &["poro-chat", "bloom", "gpt3-finnish"]),
    (rule(&[BLOOM, DIGIT]), &["viking"]),
    (
        whole(
            rule(&[
                UP_TO_THREE,
                Words(
                    concat!(
                        contractions!(),
                        r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
                    ),
                    true,
                ),
            ]),
            false,
        ),
        &["minicpm5"],
    ),
    (
        rule(&[Words(
            concat!(
                r"\p{Han}+|",
                cased!(r"(?:'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL]))?", r"--\p{Han}"),
                r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+"
            ),
            true,
        )]),
        &["kimi-k2"],
    ),
    // Spaces are U+2581 here; see `bpe`.
    (rule(&[Matches(r"[^\n]+|\n+")]), &["gemma4", "granite-embed-multi-311m"]),
];
