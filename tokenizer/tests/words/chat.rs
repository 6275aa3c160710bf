//! Chat templates of the kinds that models ship, hostile ones among them, on a vocabulary of bytes.
#![allow(clippy::unwrap_used, reason = "an error or a missing value is what fails a test")]

use std::time::{Duration, UNIX_EPOCH};

use crate::chat_support::{PUBLISHED, TRANSFORMS, tokenizer};
use halfbyte_tokenizer::Special;
use halfbyte_tokenizer::chat::{
    ChatError, ChatOptions, ChatTemplate, MAX_OUTPUT_BYTES, MAX_TEMPLATE_BYTES, Message, Prompt, Role,
};

fn prompt(template: &str, messages: &[Message]) -> Result<Prompt, ChatError> {
    let tokenizer = tokenizer(false);
    let options =
        ChatOptions { add_generation_prompt: true, now: UNIX_EPOCH + Duration::from_secs(1_709_208_000) };
    let prompt = ChatTemplate::from_source(template, &tokenizer)?.prompt(&tokenizer, messages, &options)?;
    assert_eq!(tokenizer.decode(&prompt.ids, Special::On).unwrap(), prompt.text);
    Ok(prompt)
}

/// The text for one user's message.
fn text(template: &str, content: &str) -> String {
    prompt(template, &[Message::user(content)]).unwrap().text
}

/// The control tokens of a prompt for one user's message.
fn control(template: &str, content: &str) -> Vec<u32> {
    let prompt = prompt(template, &[Message::user(content)]).unwrap();
    prompt.ids.into_iter().filter(|&id| id < 6).collect()
}

#[test]
fn transformed_messages_are_right_and_stay_text() {
    for (template, expected) in TRANSFORMS {
        assert_eq!(text(template, " a</s>\"b "), expected, "{template}");
        assert!(control(template, " a</s>\"b ").is_empty(), "{template}");
    }
}

#[test]
fn pieces_of_message_and_template_make_no_control_token() {
    for (template, content, expected) in [
        ("<|im_{{ messages[0].content }}", "end|>", "<|im_end|>"),
        ("{{ messages[0].content }}_end|>", "<|im", "<|im_end|>"),
        ("<|im{{ messages[0].content }}end|>", "_", "<|im_end|>"),
        ("{{ messages[0].content.split('+') | join }}", "</+s>", "</s>"),
        ("{{ messages[0].content.replace('+', '') }}", "<|im+_end|>", "<|im_end|>"),
        ("{{ messages[0].content[:3] + messages[0].content[4:] }}", "</s+>", "</s>"),
        ("{{ messages[0].content }}{% if '</s>' in messages[0].content %}!{% endif %}", "</s>", "</s>"),
        ("{{ '<|' + messages[0].content + '|>' }}", "user", "<|user|>"),
    ] {
        assert_eq!(text(template, content), expected, "{template}");
        assert!(control(template, content).is_empty(), "{template}");
    }
    // A role is the program's own word.
    assert_eq!(control("{{ '<|' + messages[0].role + '|>' }}", "x"), [4]);
    assert_eq!(control("{{ bos_token }}{{ messages[0].content }}{{ eos_token }}", "</s>"), [0, 1]);
}

#[test]
fn templates_can_look_for_their_own_strings() {
    let thought = "{% set c = messages[0].content %}{% if '</think>' in c %}{% set c = c.split('</think>')[-1].lstrip('\\n') %}{% endif %}\
                   {{ '<|im_start|>' + c + '<|im_end|>' }}";
    assert_eq!(text(thought, "<think>\nhm\n</think>\n\nYes</s>"), "<|im_start|>Yes</s><|im_end|>");
    assert_eq!(control(thought, "<think>\nhm\n</think>\n\nYes</s>"), [2, 3]);
    let starts = "{% if messages[0].content.startswith('<tool_response>') %}T{% else %}F{% endif %}";
    assert_eq!(text(starts, "<tool_response>x"), "T");
    assert_eq!(text(starts, "x"), "F");
}

#[test]
fn what_published_templates_use() {
    for (template, expected) in PUBLISHED {
        assert_eq!(text(template, "Hi"), expected, "{template}");
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let run = |template: &str| prompt(template, &[Message::user("x")]).unwrap_err();
    let refused = run("{{ raise_exception('Roles must alternate') }}");
    assert_eq!(refused.to_string(), "the chat template refused the messages: Roles must alternate");
    let nested = run("{% macro f() %}{{ raise_exception('no') }}{% endmacro %}{{ f() }}");
    assert!(matches!(nested, ChatError::Refused { ref message } if message == "no"), "{nested}");
    let syntax = run("a\n{% if %}");
    assert!(
        matches!(syntax, ChatError::Syntax { .. }) && syntax.to_string().contains("chat_template:2"),
        "{syntax}"
    );
    let unknown = run("{{ 'a' | nosuch }}");
    assert!(unknown.to_string().contains("nosuch"), "{unknown}");
    assert!(run("{{ strftime_now('%Q') }}").to_string().contains("%Q"));
    let size = run(&" ".repeat(MAX_TEMPLATE_BYTES + 1));
    assert_eq!(size.to_string(), "the chat template has 262145 bytes: expected at most 262144");
    let tokenizer = tokenizer(false);
    assert!(matches!(ChatTemplate::new(&tokenizer), Err(ChatError::NoTemplate)));
}

#[test]
fn hostile_templates_stop() {
    let run = |template: &str| prompt(template, &[Message::user("x")]).unwrap_err();
    let nested = "{% for a in range(9999) %}{% for b in range(9999) %}{{ 1 }}{% endfor %}{% endfor %}";
    assert_eq!(run(nested).to_string(), "the chat template took more than 2000000 steps");
    let long = format!(
        "{{% set x = 'a' * 10000 %}}{{% for a in range({}) %}}{{{{ x }}}}{{% endfor %}}",
        MAX_OUTPUT_BYTES / 10_000 + 1
    );
    assert_eq!(run(&long).to_string(), "the chat template wrote more than 16777216 bytes");
    for template in [
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
        "{% extends 'x' %}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ 'a' * 9999999999999 }}",
        "{{ range(9999999999999) | list }}",
        "{{ '%9999999999d' | format(1) }}",
        "{{ '{:>9999999999}'.format(1) }}",
        "{{ 'a' | indent(9999999999) }}",
        "{{ [1] | batch(9999999999999) }}",
        "{{ 'a' | tojson(indent=9999999999) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 10 ** 99999999999 }}",
    ] {
        let error = run(template);
        assert!(
            matches!(
                error,
                ChatError::Render { .. } | ChatError::Syntax { .. } | ChatError::OutOfFuel { .. }
            ),
            "{template}: {error}"
        );
    }
    // All of them, and a letter that is to be disguised as one.
    let all: String = ('\u{f0000}'..='\u{ffffd}').chain('\u{100000}'..='\u{10fffd}').chain(['<']).collect();
    let error = prompt("{{ messages[0].content }}", &[Message::user(all)]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the messages contain nearly all supplementary private-use characters: expected some to be left"
    );
    let deep = format!("{{{{ {}1{} }}}}", "(".repeat(50_000), ")".repeat(50_000));
    assert!(matches!(run(&deep), ChatError::Syntax { .. }));
}

#[test]
fn the_beginning_token_comes_once() {
    let tokenizer = tokenizer(true);
    for template in ["{{ bos_token }}{{ messages[0].content }}", "{{ messages[0].content }}"] {
        let compiled = ChatTemplate::from_source(template, &tokenizer).unwrap();
        let ids = compiled
            .prompt(&tokenizer, &[Message::new(Role::User, "<s>")], &ChatOptions::default())
            .unwrap()
            .ids;
        assert_eq!(ids.iter().filter(|&&id| id == 0).count(), 1, "{template}");
        assert_eq!(ids[0], 0);
    }
}
