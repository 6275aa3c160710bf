//! A vocabulary of bytes and the templates that are tried on it. The fuzz targets use them, too.

#![allow(dead_code, reason = "each program that includes this uses some of it")]

use halfbyte_tokenizer::{Tokenizer, TokenizerSpec};

/// Control tokens 0 to 5, then every byte.
pub(crate) fn spec(add_bos: bool) -> TokenizerSpec {
    let names = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|user|>", "<|assistant|>"];
    let mut tokens: Vec<String> = names.map(String::from).into();
    let own = |b: &u8| matches!(b, b'!'..=b'~' | 0xa1..=0xac | 0xae..=0xff);
    tokens.extend((0..=255_u8).filter(own).map(|b| char::from(b).to_string()));
    tokens.extend(('\u{100}'..='\u{143}').map(String::from));
    let token_types = std::iter::repeat_n(3, 6).chain(std::iter::repeat_n(1, 256)).collect();
    TokenizerSpec {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens,
        token_types,
        bos_id: Some(0),
        eos_id: Some(1),
        add_bos: Some(add_bos),
        ..TokenizerSpec::default()
    }
}

/// The tokenizer of [`spec`].
pub(crate) fn tokenizer(add_bos: bool) -> Tokenizer {
    Tokenizer::new(&spec(add_bos)).unwrap()
}

/// What templates do with a message, and what should come of ` a</s>"b ` .
pub(crate) const TRANSFORMS: [(&str, &str); 12] = [
    ("{{ messages[0].content }}", " a</s>\"b "),
    ("{{ messages[0]['content'] | trim }}", "a</s>\"b"),
    ("{{ messages[0].content.strip() }}", "a</s>\"b"),
    ("{{ messages[0].content | tojson }}", "\" a</s>\\\"b \""),
    ("{{ messages[0].content.split('\"')[0] }}", " a</s>"),
    ("{{ messages[0].content ~ messages[0].content }}", " a</s>\"b  a</s>\"b "),
    ("{{ messages[0].content | length }}", "9"),
    ("{{ messages[0].content[1:6] }}", "a</s>"),
    ("{{ messages[0].content | replace('\"', '') }}", " a</s>b "),
    ("{% if messages[0].content is string %}{{ messages[0].content.lstrip() }}{% endif %}", "a</s>\"b "),
    (
        "{% set ns = namespace(x='') %}{% for m in messages %}{% set ns.x = ns.x + m.content %}{% endfor %}{{ ns.x }}",
        " a</s>\"b ",
    ),
    ("{% macro show(m) %}{{ m.content.rstrip() }}{% endmacro %}{{ show(messages[0]) }}", " a</s>\"b"),
];

/// What published templates use, and what should come of the message `Hi` on the leap day of 2024.
pub(crate) const PUBLISHED: [(&str, &str); 12] = [
    ("{% for m in messages %}{{ loop.index0 }}{{ loop.first }}{{ m.role }}{% endfor %}", "0Trueuser"),
    (
        "{%- for m in messages -%}\n  {%- if m.role == 'user' %}\n    {{- 'U' }}\n  {%- endif %}\n{%- endfor %}",
        "U",
    ),
    ("{% if true %}\nx\n{% endif %}\ny\n", "x\ny"),
    ("  {% if true %}\nx\n  {% endif %}", "x\n"),
    ("{{ strftime_now('%d %b %Y') }}", "29 Feb 2024"),
    ("{% if strftime_now is defined and tools is none %}1{% endif %}", "1"),
    ("{% for m in messages %}{% break %}{% endfor %}{{ messages[-1].role | upper }}", "USER"),
    ("{{ {'a': [1, true, none], 'b': 'é\"'} | tojson }}", r#"{"a": [1, true, null], "b": "é\""}"#),
    ("{{ [1, {'a': 2}] | tojson(indent=2) }}", "[\n  1,\n  {\n    \"a\": 2\n  }\n]"),
    (
        "{{ messages[1:] | length }}{{ (messages | selectattr('role', 'equalto', 'user') | list) | length }}",
        "01",
    ),
    ("{% if add_generation_prompt %}go{% endif %}", "go"),
    ("{{ 'a<b&' }}", "a<b&"),
];
