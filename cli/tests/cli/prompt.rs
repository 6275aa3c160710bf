//! Where prompts come from, what they become, and what the command line says of mistakes.

use crate::support::{Done, chat_model, halfbyte, ids, keys, run, run_with_stdin, temp_dir};

/// The ids of the prompt that the embedded model would continue.
fn prompt_ids(args: &[&str], stdin: &[u8]) -> Vec<u64> {
    let args = [&["run", "-n", "0", "--json"], args].concat();
    ids(&run_with_stdin(&args, stdin).json()["prompt_ids"])
}

#[test]
fn a_prompt_comes_from_an_option_a_file_or_stdin() {
    let dir = temp_dir();
    let file = dir.path().join("prompt").display().to_string();
    std::fs::write(&file, "The sea\n").unwrap();
    let expected = prompt_ids(&["--prompt", "The sea"], b"ignored");
    assert_eq!(prompt_ids(&[], b"The sea\n"), expected);
    assert_eq!(prompt_ids(&[], b"The sea\r\n"), expected);
    assert_eq!(prompt_ids(&["-p", "-"], b"The sea"), expected);
    assert_eq!(prompt_ids(&["--prompt-file", &file], b"ignored"), expected);
    assert_eq!(prompt_ids(&["--prompt-file", "-"], b"The sea\n"), expected);
    // One line end at the very end is left out, and no other.
    assert_eq!(prompt_ids(&[], b"The sea\n\n"), prompt_ids(&["--prompt", "The sea\n"], b""));
    // Nothing on stdin is no prompt, unless it is asked for.
    let default = prompt_ids(&[], b"");
    assert!(default.len() > 3 && default != expected);
    assert_eq!(prompt_ids(&["-p", "-"], b""), [0]);
    let done = run_with_stdin(&["-n", "0", "--json"], b"The sea");
    assert_eq!(ids(&done.json()["prompt_ids"]), expected, "without a command");

    let error = run_with_stdin(&["run"], b"ab\xff").error();
    assert!(error.starts_with("the prompt on stdin is not UTF-8: "), "{error}");
    let error = run(&["run", "--prompt-file", "no/such/file"]).error();
    assert!(error.starts_with("cannot read no/such/file: "), "{error}");
    let both = run(&["run", "--prompt", "a", "--prompt-file", &file]);
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[test]
fn the_rendered_prompt_is_shown() {
    let dir = temp_dir();
    let model = chat_model(&dir);
    let chat = |more: &[&str], stdin: &[u8]| {
        let args = [&["chat", "--model", model.to_str().unwrap(), "--show-prompt"], more].concat();
        run_with_stdin(&args, stdin)
    };
    // The model's template, and its tokens: bytes, <s> and </s>.
    let text = "<s>u:Hi</s></s><s>a:";
    let expected: Vec<u64> = [256]
        .into_iter()
        .chain(b"u:Hi</s>".map(u64::from))
        .chain([257, 256])
        .chain(b"a:".map(u64::from))
        .collect();
    let json = chat(&["--prompt", "Hi</s>", "--json"], b"").json();
    assert_eq!(keys(&json), ["ids", "text"]);
    assert_eq!((json["text"].as_str(), ids(&json["ids"])), (Some(text), expected.clone()));
    assert_eq!(chat(&["--json"], b"Hi</s>\n").json(), json);
    let words: Vec<String> = expected.iter().map(u64::to_string).collect();
    assert_eq!(chat(&["--prompt", "Hi</s>"], b"").ok(), format!("{text}\n\nids: {}\n", words.join(" ")));
    let json = chat(&["--system", "Be brief", "--prompt", "Hi", "--json"], b"").json();
    assert_eq!(json["text"], "<s>s:Be brief</s><s>u:Hi</s><s>a:");
    let error = chat(&[], b"").error();
    assert_eq!(error, "--show-prompt: expected a message, from --prompt, --prompt-file or stdin");
    let error = run(&["chat", "--show-prompt", "--prompt", "Hi"]).error();
    assert!(error.contains("the model has no chat template"), "{error}");
    let usage = run(&["chat", "--json"]);
    assert!(usage.code == Some(2) && usage.stderr.contains("--show-prompt"), "{usage:?}");

    let model = model.to_str().unwrap();
    let json = run(&["run", "--model", model, "--show-prompt", "--prompt", "a</s>", "--json"]).json();
    assert_eq!((&json["text"], ids(&json["ids"])), (&"a</s>".into(), b"a</s>".map(u64::from).to_vec()));
    let json = run(&["run", "--model", model, "--show-prompt", "-p", "a</s>", "--special", "--json"]).json();
    assert_eq!(ids(&json["ids"]), [u64::from(b'a'), 257]);
}

#[test]
fn chat_answers_one_prompt_and_ends() {
    let dir = temp_dir();
    let model = chat_model(&dir);
    let args = ["chat", "--model", model.to_str().unwrap(), "--temperature", "0", "-n", "4"];
    let once = run_with_stdin(&[&args[..], &["--prompt", "Hi"]].concat(), b"more\n").ok();
    assert_eq!(once, run_with_stdin(&args, b"Hi\n").ok());
}

#[test]
fn a_model_that_stands_alone_comes_with_a_hint() {
    let dir = temp_dir();
    let model = chat_model(&dir).display().to_string();
    for line in [&["run", &model][..], &["chat", "no.gguf"], &["serve", "hf:o/r"], &[&model], &["no.gguf"]] {
        let done = run(line);
        let hint = format!("a model is named by --model: '--model {}'", line.last().unwrap());
        assert!(done.code == Some(2) && done.stderr.contains(&hint), "{line:?}: {}", done.stderr);
    }
    for line in [&["run", "words"][..], &["walk"], &["run", "--unknown"]] {
        let done = run(line);
        assert!(done.code == Some(2) && !done.stderr.contains("--model:"), "{line:?}: {}", done.stderr);
    }
}

#[test]
fn wrong_numbers_are_told_what_is_expected() {
    for (line, expected) in [
        (&["run", "--threads", "-1"][..], "a whole number from 1 to 1024"),
        (&["run", "--threads=-1"], "a whole number from 1 to 1024"),
        (&["run", "--threads", "many"], "a whole number from 1 to 1024"),
        (&["--threads", "-1"], "a whole number from 1 to 1024"),
        (&["bench", "-t", "1,-2"], "a whole number from 1 to 1024"),
        (&["run", "--ctx", "-1"], "a whole number of at least 1"),
        (&["run", "-n", "-1"], "a whole number of at least 0"),
        (&["run", "-n", "1.5"], "a whole number of at least 0"),
        (&["chat", "-n", "-1"], "a whole number of at least 0"),
        (&["run", "--top-k", "-1"], "a whole number of at least 0"),
        (&["run", "--seed", "-1"], "a whole number from 0 to 18446744073709551615"),
        (&["run", "--temperature", "warm"], "a number, such as 0.8"),
        (&["run", "--speculate", "-1"], "auto, off, or a number of tokens from 1 to 15"),
        (&["serve", "--port", "-1"], "a port number from 0 to 65535"),
        (&["serve", "--port", "65536"], "a port number from 0 to 65535"),
        (&["serve", "--slots", "-1"], "a whole number of at least 1"),
        (&["logits", "--ids", "-1"], "a token id, a number from 0 to 4294967295"),
        (&["logits", "--ids", "1", "--top", "-1"], "a whole number of at least 0"),
        (&["quantize", "a", "b", "--type", "q4_0", "--damping", "-1"], "a number from 0 to 1"),
        (&["profile", "-p", "-1"], "a whole number of at least 1"),
    ] {
        let done = run(line);
        assert_eq!(done.code, Some(2), "{line:?}: {}", done.stderr);
        assert!(done.stderr.contains(&format!("expected {expected}")), "{line:?}: {}", done.stderr);
    }
    // The sampler knows its own ranges.
    let error = run(&["run", "--temperature", "-1"]).error();
    assert_eq!(error, "temperature is -1: expected 0 or more, finite");
}

#[test]
fn empty_variables_are_unset() {
    let mut command = halfbyte(&["run", "-n", "1"]);
    let done: Done = command.env("HALFBYTE_THREADS", "").env("HALFBYTE_ISA", "").output().unwrap().into();
    assert_eq!(done.code, Some(0), "{}", done.stderr);
    assert!(
        done.stderr.contains("the fastest here") && done.stderr.contains("usable CPU"),
        "{}",
        done.stderr
    );
}
