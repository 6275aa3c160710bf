//! `--speculate`, `--draft-model`, `--kv-cache` and `halfbyte profile` on the command line.

use crate::support::{chat_model, ids, keys, plain_model, run, run_with_stdin, temp_dir};

const PROMPT: &str = "The mate looked at the sea. The cook looked at the sea. The boy looked";

fn reply(more: &[&str]) -> serde_json::Value {
    run(&[&["run", "--prompt", PROMPT, "-n", "30", "--seed", "4", "--json"], more].concat()).json()
}

#[test]
fn replies_are_the_same_with_drafts() {
    let plain = reply(&[]);
    let embedded = concat!(env!("CARGO_MANIFEST_DIR"), "/model/halfbyte-tiny.gguf");
    for more in [
        &["--speculate", "off"][..],
        &["--speculate", "auto"],
        &["--speculate", "7"],
        &["--draft-model", embedded],
        &["--draft-model", embedded, "--speculate", "3"],
    ] {
        let drafted = reply(more);
        assert_eq!((&drafted["ids"], &drafted["text"]), (&plain["ids"], &plain["text"]), "{more:?}");
        let counts = drafted["drafted"].as_u64().zip(drafted["accepted"].as_u64());
        assert_eq!(counts.is_none(), more == ["--speculate", "off"], "{drafted}");
        assert!(counts.is_none_or(|(drafted, accepted)| accepted <= drafted), "{drafted}");
    }
    let done = run(&["run", "--prompt", PROMPT, "-n", "20", "--speculate", "2", "--temperature", "0"]);
    assert!(done.stderr.contains("tokens drafted, "), "{}", done.stderr);
}

#[test]
fn a_conversation_is_the_same_with_drafts() {
    let dir = temp_dir();
    let model = chat_model(&dir);
    let model = model.to_str().unwrap();
    let chat = |more: &[&str]| {
        let args = [&["chat", "--model", model, "--seed", "9", "-n", "20"], more].concat();
        run_with_stdin(&args, b"abc abc abc\nabc abc abc\n").ok()
    };
    assert_eq!(chat(&["--speculate", "5"]), chat(&[]));
}

#[test]
fn what_can_not_draft_is_named() {
    let dir = temp_dir();
    let other = plain_model(&dir);
    let other = other.to_str().unwrap();
    let error = run(&["run", "--prompt", "x", "--draft-model", other]).error();
    assert!(error.contains("draft model 258: expected the same vocabulary"), "{error}");
    let error = run(&["run", "--prompt", "x", "--draft-model", "none.gguf"]).error();
    assert!(error.starts_with("--draft-model: ") && error.contains("none.gguf"), "{error}");
    let error = run(&["run", "--draft-model", other, "--speculate", "off"]).error();
    assert!(error.contains("leave one of them out"), "{error}");
    for bad in ["0", "16", "some"] {
        let done = run(&["run", "--speculate", bad]);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.stderr.contains("auto, off, or a number of tokens from 1 to 15"), "{}", done.stderr);
    }
}

#[test]
fn every_kv_cache_has_its_size() {
    // 4 layers, 2 heads of 64, keys and values, 512 positions.
    for (name, row) in [("f32", 256), ("f16", 128), ("bf16", 128), ("q8", 68), ("fp8", 68)] {
        let json = run(&["doctor", "--json", "--kv-cache", name]).json();
        assert_eq!(json["model"]["kv_cache"], name);
        assert_eq!(json["model"]["kv_cache_bytes"], 4 * 2 * 2 * 512 * row, "{name}");
        assert_eq!(ids(&reply(&["--kv-cache", name, "--temperature", "0"])["ids"]).len(), 30, "{name}");
    }
    let done = run(&["run", "--kv-cache", "q4"]);
    assert_eq!(done.code, Some(2));
    assert!(done.stderr.contains("[possible values: f32, f16, bf16, q8, fp8]"), "{}", done.stderr);
}

#[test]
fn a_profile_accounts_for_every_call() {
    let json = run(&["profile", "-p", "20", "-n", "3", "--json"]).json();
    assert_eq!(keys(&json), ["decode", "model", "n_gen", "n_prompt", "on", "prompt"]);
    for (part, passes) in [("prompt", 1), ("decode", 3)] {
        let phases = json[part].as_array().unwrap();
        let calls =
            |name: &str| phases.iter().find(|p| p["phase"] == name).unwrap()["calls"].as_u64().unwrap();
        // Four layers, two norms each and one at the end.
        assert_eq!(calls("embedding"), passes);
        assert_eq!(calls("logits"), passes);
        assert_eq!(calls("attention"), 4 * passes);
        assert_eq!(calls("gate/up"), 4 * passes);
        let norms = calls("norms");
        // A model with norms of q and k has one more a layer.
        assert!(norms == 9 * passes || norms == 13 * passes, "{norms}");
        let percent: f64 = phases.iter().map(|p| p["percent"].as_f64().unwrap()).sum();
        assert!((percent - 100.0).abs() < 1e-6, "{percent}");
        for phase in phases {
            let counted = !matches!(
                phase["phase"].as_str().unwrap(),
                "embedding" | "norms" | "rope" | "kv write" | "activation"
            );
            assert_eq!(
                phase["gflops"].is_number() && phase["gigabytes_per_second"].is_number(),
                counted,
                "{phase}"
            );
        }
    }
    let text = run(&["profile", "-p", "20", "-n", "3"]).ok();
    assert!(text.contains("prompt of 20 tokens") && text.contains("3 decode steps behind it"), "{text}");
}
