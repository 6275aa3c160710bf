//! `halfbyte chat` through a pipe.

use std::io::{Read, Write};
use std::process::Stdio;

use crate::support::{chat_model, halfbyte, interrupt, model_with_template, run, run_with_stdin, temp_dir};

/// Greedy replies of at most four tokens.
const SHORT: [&str; 4] = ["--temperature", "0", "-n", "4"];

#[test]
fn a_model_without_a_template_says_what_is_needed() {
    let error = run_with_stdin(&["chat"], b"Hi\n").error();
    assert!(
        error.starts_with("halfbyte-tiny (embedded) can't chat: the model has no chat template: "),
        "{error}"
    );
    assert!(
        error.contains("expected tokenizer.chat_template in its metadata; `halfbyte run` continues a text"),
        "{error}"
    );
}

/// Whatever is wrong with a template, what to do next is said.
#[test]
fn a_template_that_cannot_be_used_says_what_to_do() {
    let dir = temp_dir();
    let error = |template: &str, more: &[&str]| {
        let model = model_with_template(&dir, template);
        let args = [&["chat", "--model", model.to_str().unwrap()], more].concat();
        run_with_stdin(&args, b"Hi\n").error()
    };
    let advice = "; `halfbyte run` continues a text without a chat template, --model names another model";
    for (template, what) in [
        ("{% for m in messages %}", "the chat template cannot be compiled: "),
        ("{% include 'file' %}", "the chat template failed: "),
        ("{{ nothing.at.all }}", "the chat template failed: "),
        (
            "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
            "more than 2000000 steps",
        ),
    ] {
        let error = error(template, &[]);
        assert!(error.contains(what) && error.ends_with(advice), "{template}: {error}");
    }
    let refuses = "{% if messages[0].role == 'system' %}{{ raise_exception('users only') }}{% endif %}";
    assert_eq!(
        error(refuses, &["--system", "s"]),
        "the chat template refused the messages: users only; some templates take no system text: leave out --system"
    );
    assert_eq!(
        error("{{ raise_exception('no') }}", &[]),
        "the chat template refused the messages: no; /reset starts anew"
    );
    // Help says so before it is met.
    for command in ["chat", "run"] {
        let help = run(&[command, "--help"]).ok();
        assert!(help.contains("where that takes over a second"), "{help}");
        assert!(
            help.contains(if command == "chat" { "`halfbyte run` continues" } else { "`halfbyte chat`" }),
            "{help}"
        );
    }
}

#[test]
fn every_line_is_a_turn_and_only_replies_are_on_stdout() {
    let dir = temp_dir();
    let model = chat_model(&dir);
    let chat = |lines: &str, more: &[&str]| {
        let mut args = vec!["chat", "--model", model.to_str().unwrap()];
        args.extend(SHORT);
        args.extend(more);
        run_with_stdin(&args, lines.as_bytes())
    };
    let one = chat("Hi\n", &[]).ok();
    let two = chat("Hi\nAnd?\n", &[]).ok();
    assert!(two.starts_with(&one) && two.len() > one.len(), "{one:?} {two:?}");
    // No end of line at the end, empty lines and carriage returns make no difference.
    assert_eq!(chat("Hi\r\n\nAnd?", &[]).ok(), two);
    // Nor does where the prompt is cut: the second turn reuses the first one's context or not.
    assert_eq!(chat("Hi\n/reset\nHi\n", &[]).ok(), format!("{one}{one}"));
    // What the model is told first matters, however it is told.
    let told = chat("Hi\n", &["--system", "s"]).ok();
    assert_ne!(told, one);
    assert_eq!(chat("/system s\nHi\n", &[]).ok(), told);
    assert_eq!(chat("Hi\n/exit\nAnd?\n", &[]).ok(), one);
    assert_eq!(chat("", &[]).ok(), "");
    assert!(chat("/help\n", &[]).stderr.contains("/reset"));
    // Only the commands are commands: some models take such lines as instructions.
    let other = chat("/no_think Hello\nHi\n", &[]);
    assert_eq!(other.code, Some(0), "{other:?}");
    assert_ne!(other.stdout, one);
    assert_eq!(chat(" /no_think Hello\n", &[]).code, Some(0));
    assert!(chat("/no_think Hello\n/exit\nHi\n", &[]).ok().lines().count() < other.stdout.lines().count());
    assert_eq!(chat("/resetting\n", &[]).code, Some(0));
    assert_eq!(chat("/system\n", &[]).error(), "/system needs a text");
}

#[test]
fn a_full_context_is_an_error_unless_old_turns_may_go() {
    let dir = temp_dir();
    let model = chat_model(&dir);
    // Each side of a turn is its text and 4 tokens around it: the third or fourth does not fit in 64.
    let lines = "twelve bytes\n".repeat(6);
    let mut args = vec!["chat", "--model", model.to_str().unwrap(), "--ctx", "64"];
    args.extend(SHORT);
    let done = run_with_stdin(&args, lines.as_bytes());
    assert_eq!(done.code, Some(1));
    let error = done.stderr.lines().last().unwrap();
    assert!(error.contains("and the context holds 64, which leaves no room for a reply"), "{error}");
    assert!(error.contains("--ctx can be raised to 65536"), "{error}");
    assert!(error.contains("--drop-oldest"), "{error}");
    args.push("--drop-oldest");
    let done = run_with_stdin(&args, lines.as_bytes());
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(done.stderr.contains("[forgot the oldest "), "{}", done.stderr);
    // One message too long for the context stays an error.
    let done = run_with_stdin(&args, "x".repeat(99).as_bytes());
    assert!(done.error().contains("the conversation is 106 tokens long"));
}

/// Ctrl-C during a reply ends the reply; between replies it ends a program that reads a pipe.
#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_reply_and_not_the_program() {
    let dir = temp_dir();
    let model = chat_model(&dir);
    // The greedy reply of this model never ends, and the context is too long to be filled by then.
    let args = ["chat", "--model", model.to_str().unwrap(), "--temperature", "0", "--ctx", "65536"];
    let mut command = halfbyte(&args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut stderr = child.stderr.take().unwrap();
    let mut wait_for = |text: &str| {
        let (mut seen, mut byte) = (Vec::new(), [0]);
        while !seen.ends_with(text.as_bytes()) {
            stderr.read_exact(&mut byte).unwrap();
            seen.push(byte[0]);
        }
    };
    stdin.write_all(b"Hi\n").unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    // A full pipe would hold the program up.
    let rest = std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    interrupt(&child);
    wait_for("[stopped]\n");
    stdin.write_all(b"/help\n").unwrap();
    wait_for("sends a line that is a command.\n");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    rest.join().unwrap().unwrap();
}
