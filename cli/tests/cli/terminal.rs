//! What a model file says does not reach a terminal as orders.

use crate::support::{chat_model, model_with_template, run, run_with_stdin, temp_dir};

/// Whether a terminal would obey any of it.
fn is_plain(text: &str) -> bool {
    !text.chars().any(|c| (c.is_control() && c != '\n' && c != '\t') || c == '\u{202e}')
}

#[test]
fn the_words_of_a_template_are_escaped() {
    let dir = temp_dir();
    let template = "{{ raise_exception('a\x1b]0;title\x07\u{9b}31m\u{202e}b') }}";
    let model = model_with_template(&dir, template);
    let done = run_with_stdin(&["chat", "--model", model.to_str().unwrap()], b"Hi\n");
    assert!(is_plain(&done.stderr), "{:?}", done.stderr);
    let expected = r"refused the messages: a\u{1b}]0;title\u{7}\u{9b}31m\u{202e}b; /reset starts anew";
    assert!(done.stderr.contains(expected), "{}", done.stderr);
    // Metadata, for people and as JSON.
    let path = model.to_str().unwrap();
    let text = run(&["inspect", path]).ok();
    assert!(is_plain(&text) && text.contains(r"\u{1b}]0;title"), "{text:?}");
    let done = run(&["inspect", path, "--json"]);
    assert!(is_plain(&done.stdout), "{:?}", done.stdout);
    assert_eq!(done.json()["metadata"]["tokenizer.chat_template"], template);
    let done = run(&["chat", "--model", path, "--show-prompt", "--prompt", "x"]);
    assert!(done.code == Some(1) && is_plain(&done.stderr), "{done:?}");
}

#[test]
fn names_of_files_are_escaped() {
    let dir = temp_dir();
    let model = dir.path().join("\x1b[31mred\r.gguf");
    std::fs::rename(chat_model(&dir), &model).unwrap();
    let path = model.to_str().unwrap();
    let done = run(&["run", "--model", path, "-n", "1", "-p", "x"]);
    assert!(done.code == Some(0) && is_plain(&done.stderr), "{:?}", done.stderr);
    assert!(done.stderr.contains(r"\u{1b}[31mred\u{d}.gguf"), "{}", done.stderr);
    assert!(is_plain(&run(&["inspect", path]).ok()));
    let done = run(&["run", "--model", &format!("{path}x")]);
    assert!(done.code == Some(1) && is_plain(&done.stderr), "{:?}", done.stderr);
}

/// In a pipe a reply is what the model said, to the byte.
#[test]
fn a_rendered_prompt_is_escaped_for_people() {
    let dir = temp_dir();
    let model = chat_model(&dir);
    let show = |more: &[&str]| {
        let args = ["chat", "--model", model.to_str().unwrap(), "--show-prompt", "-p", "\x1b[31m"];
        run(&[&args[..], more].concat())
    };
    assert!(show(&[]).ok().starts_with("<s>u:\\u{1b}[31m</s>"));
    let done = show(&["--json"]);
    assert!(is_plain(&done.stdout));
    assert_eq!(done.json()["text"], "<s>u:\x1b[31m</s><s>a:");
}
