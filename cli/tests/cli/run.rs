//! `halfbyte run`, and `halfbyte` alone.

use std::process::Stdio;

use crate::support::{chat_model, halfbyte, ids, keys, plain_model, run, temp_dir};
use halfbyte_cpu_kernels::Isa;

#[test]
fn alone_it_runs_the_embedded_model() {
    let done = run(&[]);
    assert_eq!(done.code, Some(0), "{done:?}");
    // What it says is left to chance, even when it ends.
    assert!(done.stdout.ends_with('\n'), "{}", done.stdout);
    for part in ["It was a dark", "prompt ", "decode ", "tokens/s", "isa ", "threads ", "seed "] {
        assert!(done.stderr.contains(part), "{part:?} is not in {}", done.stderr);
    }
    assert!(!done.stdout.contains("tokens/s"));
}

#[test]
fn json_has_five_keys_and_stands_alone_on_stdout() {
    let done = run(&["run", "--prompt", "The sea", "-n", "9", "--temperature", "0", "--json"]);
    assert_eq!(done.stderr, "");
    let json = done.json();
    assert_eq!(
        keys(&json),
        ["decode_tokens_per_second", "ids", "prompt_ids", "prompt_tokens_per_second", "text"]
    );
    assert_eq!(ids(&json["ids"]).len(), 9);
    assert!(!ids(&json["prompt_ids"]).is_empty());
    assert!(json["prompt_tokens_per_second"].as_f64().unwrap() > 0.0);
    assert!(json["decode_tokens_per_second"].as_f64().unwrap() > 0.0);
    let plain = run(&["run", "--prompt", "The sea", "-n", "9", "--temperature", "0"]).ok();
    assert_eq!(plain, format!("{}\n", json["text"].as_str().unwrap()));
}

#[test]
fn rates_of_nothing_are_null() {
    let json = run(&["run", "--prompt", "The sea", "-n", "1", "--json"]).json();
    assert_eq!(ids(&json["ids"]).len(), 1);
    assert!(json["decode_tokens_per_second"].is_null());
    let json = run(&["run", "--prompt", "The sea", "-n", "0", "--json"]).json();
    assert_eq!((ids(&json["ids"]).len(), json["text"].as_str()), (0, Some("")));
    assert!(json["prompt_tokens_per_second"].as_f64().unwrap() > 0.0);
}

/// The same seed gives the same reply on any number of threads and any instruction set.
#[test]
fn the_reply_does_not_depend_on_threads_or_isa() {
    let reply_of = |seed: &str, more: &[&str]| {
        let prompt = "The captain, who was handsome and rich,";
        let mut args = vec!["run", "--prompt", prompt, "-n", "40", "--seed", seed, "--json"];
        args.extend(more);
        let json = run(&args).json();
        (json["prompt_ids"].clone(), json["ids"].clone(), json["text"].clone())
    };
    let reply = |more: &[&str]| reply_of("5", more);
    for activations in ["int8", "f32"] {
        let expected = reply(&["--activations", activations, "--threads", "1"]);
        for threads in ["2", "3"] {
            assert_eq!(
                reply(&["--activations", activations, "--threads", threads]),
                expected,
                "{threads} threads"
            );
        }
        for isa in Isa::available() {
            assert_eq!(reply(&["--activations", activations, "--isa", isa.name()]), expected, "{isa}");
        }
    }
    assert_ne!(reply_of("6", &[]), reply(&[]));
}

#[test]
fn a_prompt_longer_than_the_context_names_both_numbers() {
    let args = ["run", "--prompt", "one two three four five six", "--ctx", "3", "--json"];
    let n = ids(&run(&["logits", "--prompt", args[2], "--top", "1", "--json"]).json()["ids"]).len();
    assert!(n > 3);
    let error = run(&args).error();
    assert_eq!(
        error,
        format!("the prompt is {n} tokens long, the context holds 3; --ctx can be raised to 512")
    );
}

#[test]
fn a_full_context_ends_the_reply_and_is_said() {
    let done = run(&["run", "--prompt", "The sea", "-n", "50", "--ctx", "12", "--temperature", "0"]);
    assert!(done.stderr.contains("stopped: the context of 12 tokens is full"), "{}", done.stderr);
    let json =
        run(&["run", "--prompt", "The sea", "-n", "50", "--ctx", "12", "--temperature", "0", "--json"])
            .json();
    // The last token needs no room: it is not fed.
    assert_eq!(ids(&json["prompt_ids"]).len() + ids(&json["ids"]).len(), 12 + 1);
}

#[test]
fn a_context_that_the_model_does_not_have_is_an_error() {
    let error = run(&["run", "--ctx", "513"]).error();
    assert_eq!(error, "a context of 513 was asked for; the model is trained for up to 512, the least is 1");
}

#[test]
fn an_empty_prompt_is_the_token_that_begins_a_text_or_an_error() {
    assert_eq!(ids(&run(&["run", "--prompt", "", "-n", "3", "--json"]).json()["prompt_ids"]), [0]);
    let dir = temp_dir();
    let plain = plain_model(&dir);
    let error = run(&["run", "--model", plain.to_str().unwrap(), "--prompt", ""]).error();
    assert!(
        error.starts_with("the prompt is empty, and the model names no token that begins a text"),
        "{error}"
    );
}

#[test]
fn text_is_control_tokens_only_when_asked() {
    let dir = temp_dir();
    let model = chat_model(&dir);
    let prompt = |more: &[&str]| {
        let mut args =
            vec!["run", "--model", model.to_str().unwrap(), "--prompt", "a</s>", "-n", "0", "--json"];
        args.extend(more);
        ids(&run(&args).json()["prompt_ids"])
    };
    assert_eq!(prompt(&[]), b"a</s>".map(u64::from));
    assert_eq!(prompt(&["--special"]), [u64::from(b'a'), 257]);
}

#[test]
fn names_of_isa_paths_are_checked() {
    let error = run(&["run", "--isa", "mmx"]).error();
    assert_eq!(error, format!("unknown ISA path \"mmx\"; this build knows: {}", Isa::known().join(", ")));
    let done: crate::support::Done =
        halfbyte(&["run", "-n", "1"]).env("HALFBYTE_ISA", "mmx").output().unwrap().into();
    assert!(done.error().starts_with("unknown ISA path"));
    let done: crate::support::Done =
        halfbyte(&["run", "-n", "1"]).env("HALFBYTE_ISA", "scalar").output().unwrap().into();
    assert!(done.stderr.contains("isa scalar (HALFBYTE_ISA)"), "{}", done.stderr);
}

#[test]
fn files_that_are_no_models_are_named_with_the_reason() {
    let dir = temp_dir();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("text"), "hello, this is text").unwrap();
    std::fs::write(path("empty"), "").unwrap();
    let error = |model: &str| run(&["run", "--model", model]).error();
    assert!(error(&path("none")).starts_with(&format!("cannot open {}: ", path("none"))));
    assert!(error(&path("")).contains("is a directory without config.json: expected a GGUF file"));
    assert!(error(&path("text")).starts_with(&format!("{}: not a GGUF file", path("text"))));
    assert!(error(&path("empty")).ends_with("is empty: expected a GGUF file"));
}

#[test]
fn settings_out_of_range_are_errors() {
    let error = run(&["run", "--temperature=-1"]).error();
    assert_eq!(error, "temperature is -1: expected 0 or more, finite");
    for usage in [
        &["run", "--threads", "0"][..],
        &["run", "--threads", "1025"],
        &["run", "--ctx", "0"],
        &["run", "-n", "-1"],
        &["run", "--activations", "int4"],
        &["run", "--unknown"],
        &["walk"],
    ] {
        let done = run(usage);
        assert_eq!((done.code, done.stdout.as_str()), (Some(2), ""), "{usage:?}");
        assert!(done.stderr.starts_with("error: "), "{}", done.stderr);
    }
}

/// As in `halfbyte run | head -c 1`.
#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    let mut child =
        halfbyte(&["run", "-n", "60"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    assert!(!stderr.contains("error") && !stderr.contains("panicked"), "{stderr}");
}

#[test]
fn help_has_examples() {
    let help = run(&["--help"]).ok();
    for command in ["run", "chat", "tokenize", "logits", "bench", "inspect", "doctor"] {
        assert!(help.contains(&format!("\n  {command} ")), "{help}");
    }
    for command in ["run", "chat", "tokenize", "logits", "bench"] {
        assert!(run(&[command, "--help"]).ok().contains("Examples:"), "{command}");
    }
    assert_eq!(run(&["--version"]).ok(), format!("halfbyte {}\n", env!("CARGO_PKG_VERSION")));
}
