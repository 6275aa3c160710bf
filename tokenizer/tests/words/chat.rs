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
    let now = UNIX_EPOCH + Duration::from_secs(1_709_208_000);
    let options = ChatOptions { now, ..ChatOptions::default() };
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

/// One instruction may double a text or a list, so steps alone bound no memory.
#[test]
fn templates_that_grow_without_end_run_out_of_memory() {
    let ns = "{% set ns = namespace(s='xxxxxxxxxxxxxxxx', l=[1, 2]) %}";
    let double =
        |step: &str| format!("{ns}{{% for i in range(60) %}}{step}{{% endfor %}}{{{{ ns.s|length }}}}");
    for step in [
        "{% set ns.s = ns.s ~ ns.s %}",
        "{% set ns.s = ns.s + ns.s %}",
        "{% set ns.s = ns.s * 2 %}",
        "{% set ns.s = [ns.s, ns.s]|join %}",
        "{% set ns.s = ns.s|join(ns.s) %}",
        "{% set ns.s = ns.s.join([ns.s, ns.s]) %}",
        "{% set ns.s = ns.s|replace('x', 'xx') %}",
        "{% set ns.s = ns.s.replace('x', 'xx') %}",
        "{% set ns.s = ns.s|replace('', ns.s) %}",
        "{% set ns.s = [ns.s, ns.s]|tojson %}",
        "{% set ns.s = [ns.s, ns.s]|string %}",
        "{% set ns.s = {'a': ns.s, 'b': ns.s} ~ '' %}",
        "{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}",
        "{% set ns.s %}{% filter upper %}{{ ns.s }}{{ ns.s }}{% endfilter %}{% endset %}",
        "{% macro twice(s) %}{{ s }}{{ s }}{% endmacro %}{% set ns.s = twice(ns.s) %}",
        "{% macro around() %}{{ caller() }}{{ caller() }}{% endmacro %}\
         {% set ns.s %}{% call around() %}{{ ns.s }}{% endcall %}{% endset %}",
        "{% set ns.l = ns.l + ns.l %}",
        "{% set ns.l = ns.l * 2 %}",
        "{% set ns.l = ns.l * 1000000000 %}",
        "{% set ns.l = ns.l|chain(ns.l)|list %}",
        "{% set ns.l = ns.l|chain(ns.l) %}",
        "{% set ns.l = [ns.l, ns.l] %}",
        "{% set ns.l = {'a': ns.l, 'b': ns.l} %}",
        "{% set ns.l = dict(a=ns.l, b=ns.l) %}",
        "{% set ns.l = (ns.l + ns.l)|map('string') %}",
        "{% set ns.l = ns.l|zip(ns.l) %}{% set ns.l = ns.l + ns.l %}",
    ] {
        let error = prompt(&double(step), &[Message::user("x")]).unwrap_err();
        // Lists inside one another are refused by their depth before they are large.
        let deep = error.to_string().contains("more than 64 deep");
        assert!(matches!(error, ChatError::OutOfMemory { .. }) || deep, "{step}: {error}");
    }
    // Many large texts instead of one.
    let many = "{% set s = 'x' * 1000000 %}{% set ns = namespace(l=[]) %}\
                {% for i in range(99999) %}{% set ns.l = ns.l + [s ~ i] %}{% endfor %}";
    assert!(matches!(prompt(many, &[Message::user("x")]), Err(ChatError::OutOfMemory { .. })));
    // Text between statements, captured again and again.
    let raw = format!(
        "{{% set s %}}{{% for i in range(99999) %}}{}{{% endfor %}}{{% endset %}}",
        "x".repeat(200_000)
    );
    assert!(matches!(prompt(&raw, &[Message::user("x")]), Err(ChatError::OutOfMemory { .. })));
    let error = prompt("{% set s = 'x' * 1000000 %}{{ (s * 90) ~ (s * 90) }}", &[Message::user("x")]);
    let expected = "the chat template used more than 134217728 bytes of memory";
    assert_eq!(error.unwrap_err().to_string(), expected);
}

/// Constants are computed when a template is compiled, before anything is counted.
#[test]
fn large_constants_are_refused() {
    for template in [
        "{{ 'a' * 100000000 }}".to_owned(),
        "{{ 'a' * 10000 * 10000 }}".to_owned(),
        "{{ 'a' * 1000000 }}".repeat(9),
        "{{ ([1] * 100000000) ~ '' }}".to_owned(),
        "{% if x %}{% set y = ('b' * 99999999)|length %}{% endif %}".to_owned(),
        "{{ f(x, y=g['a' * 99999999]) }}".to_owned(),
    ] {
        let error = prompt(&template, &[Message::user("x")]).unwrap_err();
        assert!(
            matches!(&error, ChatError::Syntax { message } if message.contains("constants of more than 1048576")),
            "{template}: {error}"
        );
    }
    assert_eq!(text("{{ 'ab' * 3 }}", ""), "ababab");
}

/// Depth takes stack, when a template is compiled, when a value is used, and when it is dropped.
#[test]
fn deep_templates_and_values_are_refused() {
    let repeat = |part: &str, n: usize| part.repeat(n);
    for template in [
        format!("{{{{ 1{} }}}}", repeat("+1", 50_000)),
        format!("{{{{ x{} }}}}", repeat("~x", 50_000)),
        format!("{{{{ x{} }}}}", repeat(".x", 50_000)),
        format!("{{{{ x{} }}}}", repeat("|e", 50_000)),
        format!("{{{{ {}1 }}}}", repeat("not ", 50_000)),
        format!("{{% if x %}}{}{{% endif %}}", repeat("{% elif x %}", 15_000)),
        repeat("{% if x %}", 20_000),
        format!("{{{{ {} }}}}", repeat("[", 100_000)),
        format!("{{{{ x if x {} }}}}", repeat("else x if x ", 15_000)),
    ] {
        let error = prompt(&template, &[Message::user("x")]).unwrap_err();
        assert!(matches!(error, ChatError::Syntax { .. }), "{}: {error}", &template[..40]);
    }
    let grow = |step: &str| {
        let template = format!(
            "{{% set ns = namespace(l=[1]) %}}{{% for i in range(50000) %}}{step}{{% endfor %}}{{{{ ns.l }}}}"
        );
        prompt(&template, &[Message::user("x")])
    };
    for step in [
        "{% set ns.l = [ns.l] %}",
        "{% set ns.l = {'a': ns.l} %}",
        "{% set ns.l = dict(a=ns.l) %}",
        "{% set ns.l = dict(a=ns.l).items() %}",
        "{% set ns.l = [1]|zip([ns.l]) %}",
        "{% set ns.l = [ns.l]|groupby(0) %}",
    ] {
        let error = grow(step).unwrap_err();
        assert!(matches!(error, ChatError::Render { .. }), "{step}: {error}");
    }
    // What is computed only when it is used would be as deep.
    for step in [
        "{% set ns.l = ns.l[0:] %}",
        "{% set ns.l = ns.l * 1 %}",
        "{% set ns.l = ns.l + [] %}",
        "{% set ns.l = ns.l|reverse %}",
    ] {
        assert_eq!(grow(step).unwrap().text, "[1]", "{step}");
    }
    // A namespace in itself could be neither shown nor freed.
    for step in [
        "{% set ns.l = ns %}",
        "{% set ns.l = [ns] %}",
        "{% set ns.l = {'a': {'b': ns}} %}",
        "{% set ns.l = namespace(a=ns) %}",
    ] {
        let error = grow(step).unwrap_err().to_string();
        assert!(error.contains("a namespace cannot be stored in a namespace"), "{step}: {error}");
    }
}

/// What is counted is counted for one prompt, and leaves long conversations alone.
#[test]
fn a_long_conversation_is_not_too_much() {
    let template = "{% set ns = namespace(last='') %}{% for m in messages %}\
                    {% if '</think>' in m.content %}{% set c = m.content.split('</think>')[-1] %}{% else %}{% set c = m.content|trim %}{% endif %}\
                    {% if messages[loop.index0:]|selectattr('role', 'equalto', 'tool')|list|length == 0 %}{% set ns.last = m.role %}{% endif %}\
                    {{ '<|im_start|>' + m.role + '\n' + c + '<|im_end|>' }}{% endfor %}";
    let messages: Vec<_> = (0..400).map(|_| Message::user("ten bytes. ".repeat(200))).collect();
    let tokenizer = tokenizer(false);
    let compiled = ChatTemplate::from_source(template, &tokenizer).unwrap();
    for _ in 0..3 {
        let text = compiled.prompt(&tokenizer, &messages, &ChatOptions::default()).unwrap().text;
        assert!(text.len() > 400 * 2190, "{}", text.len());
    }
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
