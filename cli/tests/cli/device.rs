//! `--device`: the same model on a CUDA device, here the emulator.

use crate::support::{keys, run, temp_dir};
use serde_json::Value;

/// Layers of the embedded model.
const LAYERS: u64 = 4;

const KEYS: [&str; 7] =
    ["kv_cache", "loss", "loss_stderr", "name", "perplexity", "perplexity_stderr", "prompt_precision"];

const COMMON: [&str; 8] =
    ["run", "--prompt", "The captain looked", "-n", "5", "--temperature", "0", "--json"];

fn reply(args: &[&str]) -> Value {
    run(&[&COMMON[..], args].concat()).json()
}

#[test]
fn the_emulator_replies_as_the_cpu_does() {
    let cpu = reply(&["--activations", "f32"]);
    assert_eq!(cpu["ids"].as_array().unwrap().len(), 5);
    for args in [&[][..], &["--kv-cache", "fp8"], &["--speculate", "auto"]] {
        let got = reply(&[&["--device", "cuda-emulator"], args].concat());
        // The best token is far enough ahead of the others in this text.
        assert_eq!(got["ids"], cpu["ids"], "{args:?}");
        assert_eq!(got["text"], cpu["text"]);
    }
    // int8 is for quantized weights, which the model in the program does not have.
    let cpu = reply(&["--activations", "f32", "--load-as", "q8_0"]);
    let got = reply(&["--device", "cuda-emulator", "--prompt-precision", "int8", "--load-as", "q8_0"]);
    assert_eq!((&got["ids"], &got["text"]), (&cpu["ids"], &cpu["text"]));
}

/// A file with a text that has a few more than 16 tokens, dropped with its directory.
fn text() -> (tempfile::TempDir, String) {
    let dir = temp_dir();
    let path = dir.path().join("text.txt");
    let text = "The captain looked at the sea for a long while, and said nothing that anybody could hear.";
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    (dir, path)
}

/// Windows of 12 tokens: a prompt of 7, and 5 that are scored.
fn kl(text: &str, args: &[&str]) -> Value {
    let common =
        ["kl", "--text", text, "--ctx", "12", "--windows", "1", "--json", "--device", "cuda-emulator"];
    let json = run(&[&common[..], args].concat()).json();
    assert_eq!((&json["windows"], &json["tokens"]), (&1.into(), &5.into()));
    json
}

#[test]
fn what_a_prompts_precision_does_to_the_reply_behind_it() {
    let (dir, text) = text();
    let number = |value: &Value| value.as_f64().unwrap();
    let tiny = concat!(env!("CARGO_MANIFEST_DIR"), "/model/halfbyte-tiny.gguf");
    let quantized = dir.path().join("q8_0.gguf");
    run(&["quantize", tiny, quantized.to_str().unwrap(), "--type", "q8_0"]).ok();
    let model = ["--model", quantized.to_str().unwrap()];
    let json =
        kl(&text, &[&model[..], &["--base-prompt-precision", "bf16", "--prompt-precision", "int8"]].concat());
    for (side, precision) in [("base", "bf16"), ("model", "int8")] {
        assert_eq!(keys(&json[side]), KEYS);
        assert_eq!(
            (&json[side]["prompt_precision"], &json[side]["kv_cache"]),
            (&precision.into(), &"bf16".into())
        );
    }
    let [mean, p99, most] = ["mean", "p99", "max"].map(|figure| number(&json["kl"][figure]));
    assert!(0.0 < mean && mean < p99 && p99 <= most && most < 0.02, "{json}");
    // Both precisions give the likeliest token of this text.
    assert_eq!(json["same_top_percent"], 100.0);

    // The base's own keys and values, and the same on both sides.
    let fp8 = kl(&text, &["--base-kv-cache", "fp8"]);
    assert_eq!((&fp8["base"]["kv_cache"], &fp8["model"]["kv_cache"]), (&"fp8".into(), &"bf16".into()));
    assert!((1e-9..0.05).contains(&number(&fp8["kl"]["mean"])), "{fp8}");
    let int8 = ["--prompt-precision", "int8", "--base-prompt-precision", "int8"];
    let same = kl(&text, &[&model[..], &int8].concat());
    assert_eq!((number(&same["kl"]["max"]), &same["model"]["loss"]), (0.0, &same["base"]["loss"]));

    // Other weights, each with a copy on the device.
    let other = kl(&text, &["--load-as", "q4_0"]);
    assert!((1e-4..1.0).contains(&number(&other["kl"]["mean"])), "{other}");
    assert_ne!(other["base"]["loss"], other["model"]["loss"]);
}

#[test]
fn a_device_predicts_a_text_as_the_cpu_does() {
    let (_dir, text) = text();
    let perplexity = |args: &[&str]| {
        let common = ["perplexity", "--text", &text, "--ctx", "12", "--windows", "1", "--json"];
        let json = run(&[&common[..], args].concat()).json();
        json["loss"].as_f64().unwrap()
    };
    let (cpu, device) = (perplexity(&["--activations", "f32"]), perplexity(&["--device", "cuda-emulator"]));
    assert!((cpu - device).abs() < 0.02, "{cpu} {device}");
}

#[test]
fn a_profile_counts_what_the_kernels_do() {
    let common = ["profile", "-p", "5", "-n", "2", "--device", "cuda-emulator"];
    let json = run(&[&common[..], &["--json"]].concat()).json();
    assert_eq!(keys(&json), ["decode", "model", "n_gen", "n_prompt", "on", "prompt"]);
    let row = |half: &str, kernel: &str| {
        let rows = json[half].as_array().unwrap();
        let row = rows.iter().find(|row| row["kernel"].as_str().unwrap().starts_with(kernel));
        row.unwrap_or_else(|| panic!("{kernel}: {json}")).clone()
    };
    let count = |row: &Value, what: &str| row[what].as_u64().unwrap();
    let (prefill, decode) = (row("prompt", "attention_prefill"), row("decode", "attention_decode"));
    let keys_of = ["bank_conflicts", "bytes", "calls", "kernel", "least_bytes", "mma", "warp_instructions"];
    assert_eq!(keys(&prefill), keys_of);
    // A launch a layer and step, and the merge of its chunks.
    assert_eq!((count(&decode, "calls"), count(&prefill, "calls")), (2 * count(&prefill, "calls"), LAYERS));
    assert_eq!(count(&row("decode", "attention_merge"), "calls"), 2 * LAYERS);
    for row in [&prefill, &decode] {
        assert!(count(row, "mma") > 0 && count(row, "warp_instructions") > count(row, "mma"), "{row}");
    }
    // No kernel moves less than it has to.
    for row in ["prompt", "decode"].iter().flat_map(|half| json[half].as_array().unwrap()) {
        assert!(count(row, "bytes") >= count(row, "least_bytes") && count(row, "least_bytes") > 0, "{row}");
    }
    let text = run(&common).ok();
    let expected = [
        "no times, which would be the emulator's",
        "prompt of 5 tokens\nkernel",
        "2 decode steps behind it\nkernel",
    ];
    for part in expected {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
}

#[test]
fn bench_on_a_device() {
    let common = ["bench", "-p", "4", "-n", "2", "--reps", "1", "--device", "cuda-emulator"];
    let json = run(&[&common[..], &["--json"]].concat()).json();
    assert!(json["device"].as_str().unwrap().starts_with("halfbyte emulator ("), "{json}");
    assert_eq!((&json["isa"], &json["prompt_precision"]), (&Value::Null, &"bf16".into()));
    let results = json["results"].as_array().unwrap();
    let tests: Vec<_> = results.iter().map(|r| (&r["n_prompt"], &r["n_gen"], &r["threads"])).collect();
    assert_eq!(tests, [(&4.into(), &0.into(), &Value::Null), (&0.into(), &2.into(), &Value::Null)]);
    assert!(results.iter().all(|r| r["tokens_per_second"]["median"].as_f64().unwrap() > 0.0), "{json}");
}

#[test]
fn greedy_tokens_are_chosen_on_the_device_and_draws_are_not() {
    let shown = |args: &[&str]| {
        let done = run(&[&["run", "--prompt", "The captain looked", "-n", "2"], args].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
        let line = done.stderr.lines().find(|line| line.starts_with("sampler "));
        line.unwrap_or_else(|| panic!("{done:?}")).to_owned()
    };
    let device = ["--device", "cuda-emulator"];
    assert_eq!(shown(&[&device[..], &["--temperature", "0"]].concat()), "sampler greedy, on the device");
    assert_eq!(
        shown(&[&device[..], &["--temperature", "0", "--repeat-penalty", "1.1"]].concat()),
        "sampler greedy, on the CPU"
    );
    assert_eq!(
        shown(&[&device[..], &["--seed", "3"]].concat()),
        "sampler temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, seed 3, on the CPU"
    );
    assert_eq!(shown(&["--temperature", "0"]), "sampler greedy");
}

/// Options of one side are not ignored on the other.
#[test]
fn options_of_the_cpu_are_refused_on_a_device_and_the_other_way_round() {
    let (_dir, text) = text();
    let kl = ["kl", "--text", &text];
    for device in ["cuda", "cuda-emulator"] {
        let refused = |args: &[&str], name: &str| {
            let error = run(&[args, &["--device", device]].concat()).error();
            assert_eq!(
                error,
                format!("{name} is for the CPU: with --device {device} leave it out"),
                "{args:?}"
            );
        };
        for option in
            [&["--threads", "2"][..], &["--isa", "scalar"], &["--activations", "int8"], &["--no-pack"]]
        {
            for command in ["run", "chat", "bench", "profile"] {
                refused(&[&[command], option].concat(), option[0]);
            }
            refused(&[&kl, option].concat(), option[0]);
        }
        refused(&["bench", "-t", "1"], "-t");
        refused(&[&kl[..], &["--base-activations", "f32"]].concat(), "--base-activations");
        for command in [&["tokenize"][..], &["logits", "--ids", "1"], &["doctor"]] {
            let error = run(&[command, &["--device", device]].concat()).error();
            let expected = "only `run`, `chat`, `serve`, `perplexity`, `kl`, `bench` and `profile` compute on other devices than the CPU";
            assert_eq!(error, format!("--device {device}: {expected}"), "{command:?}");
        }
    }
    let on_cpu = |args: &[&str], name: &str| {
        let expected = format!("{name} is for CUDA devices; on the CPU --activations says the like");
        assert_eq!(run(args).error(), expected);
    };
    on_cpu(&["run", "--prompt-precision", "int8"], "--prompt-precision");
    on_cpu(&[&kl[..], &["--base-prompt-precision", "int8"]].concat(), "--base-prompt-precision");
    let error = run(&[&kl[..], &["--device", "cuda-emulator", "--base-kv-cache", "q8"]].concat()).error();
    assert_eq!(error, "base: --kv-cache q8: on a CUDA device expected bf16 or fp8");
}

#[test]
fn what_a_device_has_not_is_refused_by_name() {
    let refused = |args: &[&str]| run(&[&COMMON[..], args].concat()).error();
    assert_eq!(
        refused(&["--device", "cuda-emulator", "--kv-cache", "q8"]),
        "--kv-cache q8: on a CUDA device expected bf16 or fp8"
    );
    // Where there is no GPU the error says what is missing, and what else there is.
    let done = run(&[&COMMON[..], &["--device", "cuda"]].concat());
    if done.code != Some(0) {
        let error = done.error();
        assert!(error.starts_with("--device cuda (cuda-emulator needs no GPU, and is slow): "), "{error}");
        assert!(error.contains("libcuda.so.1") || error.contains("GPU"), "{error}");
    }
}
