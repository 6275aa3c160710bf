//! `halfbyte perplexity` and `halfbyte kl`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use crate::support::{Done, chat_model, halfbyte, ids, interrupt, keys, run, run_with_stdin, temp_dir};
use halfbyte_gguf::{Gguf, GgufWriter, Metadata};
use serde_json::Value;

const TEXT: &str =
    "The captain looked at the sea for a long while, and said nothing that anybody could hear.";

/// A file with `text` in it, dropped with its directory.
struct TextFile {
    dir: tempfile::TempDir,
    path: String,
}

fn text_file(text: &[u8]) -> TextFile {
    let dir = temp_dir();
    let path = dir.path().join("text.txt");
    std::fs::write(&path, text).unwrap();
    let path = path.to_str().unwrap().to_owned();
    TextFile { dir, path }
}

/// The tokens of a text for the embedded model.
fn tokenize(text: &str) -> Vec<u64> {
    ids(&run_with_stdin(&["tokenize", "--json"], text.as_bytes()).json()["ids"])
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[track_caller]
fn assert_close(got: &Value, expected: f64) {
    let got = number(got);
    assert!((got - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{got} is not {expected}");
}

/// The logits after each token of `ids`, by id, from `halfbyte logits`.
fn logits(ids: &[u64], more: &[&str]) -> Vec<Vec<f64>> {
    let list = ids.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
    let mut args = vec!["logits", "--ids", &list, "--top", "1000000", "--json"];
    args.extend(more);
    let json = run(&args).json();
    let row = |position: &Value| {
        let top = crate::support::ids(&position["top_ids"]);
        let mut row = vec![f64::NAN; top.len()];
        for (id, logit) in top.iter().zip(position["top_logits"].as_array().unwrap()) {
            // Written with as many digits as tell f32 numbers apart.
            row[usize::try_from(*id).unwrap()] = f64::from(number(logit) as f32);
        }
        row
    };
    json["positions"].as_array().unwrap().iter().map(row).collect()
}

/// `-ln softmax` of each logit, written down plainly: these logits are small.
fn surprises(logits: &[f64]) -> Vec<f64> {
    let sum: f64 = logits.iter().map(|x| x.exp()).sum();
    logits.iter().map(|x| sum.ln() - x).collect()
}

/// The mean and its standard error, by the textbook.
fn mean_and_error(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n - 1.0);
    (mean, (variance / n).sqrt())
}

/// What the losses of the scored `targets` (indices in `ids`) are by `halfbyte logits` on one window.
fn expected_losses(ids: &[u64], targets: std::ops::Range<usize>, more: &[&str]) -> Vec<f64> {
    let rows = logits(ids, more);
    targets.map(|t| surprises(&rows[t - 1])[usize::try_from(ids[t]).unwrap()]).collect()
}

fn perplexity(text: &TextFile, more: &[&str]) -> Done {
    let mut args = vec!["perplexity", "--text", &text.path];
    args.extend(more);
    run(&args)
}

fn kl(text: &TextFile, more: &[&str]) -> Done {
    let mut args = vec!["kl", "--text", &text.path];
    args.extend(more);
    run(&args)
}

#[test]
fn perplexity_is_what_the_logits_say() {
    let text = text_file(TEXT.as_bytes());
    let ids = tokenize(TEXT);
    let n = ids.len();
    let ctx = n.to_string();
    for kind in [&["--activations", "f32"][..], &["--activations", "int8"]] {
        for (rule, first_scored) in [(&["--stride", &ctx][..], 1), (&[], n / 2 + 1)] {
            let losses = expected_losses(&ids, first_scored..n, kind);
            let (loss, error) = mean_and_error(&losses);
            let json = perplexity(&text, &[kind, rule, &["--ctx", &ctx, "--json"]].concat()).json();
            assert_eq!((&json["windows"], &json["tokens"]), (&1.into(), &losses.len().into()));
            assert_close(&json["loss"], loss);
            assert_close(&json["loss_stderr"], error);
            assert_close(&json["perplexity"], loss.exp());
            assert_close(&json["perplexity_stderr"], loss.exp() * error);
            if first_scored == 1 {
                // "The" is the first token, the rest is scored.
                assert_eq!(
                    (ids[0], json["bytes"].as_u64()),
                    (tokenize("The")[0], Some(TEXT.len() as u64 - 3))
                );
                assert_close(&json["nats_per_byte"], losses.iter().sum::<f64>() / (TEXT.len() - 3) as f64);
            }
        }
    }
}

#[test]
fn every_window_starts_afresh() {
    let text = text_file(TEXT.as_bytes());
    let ids = tokenize(TEXT);
    let overlapping = [(0..8, 1..8), (3..11, 5..8), (6..14, 5..8)];
    let side_by_side = [(0..8, 1..8), (8..16, 1..8)];
    for (stride, windows) in [("3", &overlapping[..]), ("8", &side_by_side)] {
        let losses: Vec<f64> = windows
            .iter()
            .flat_map(|(window, targets)| expected_losses(&ids[window.clone()], targets.clone(), &[]))
            .collect();
        let limit = windows.len().to_string();
        let json =
            perplexity(&text, &["--ctx", "8", "--stride", stride, "--windows", &limit, "--json"]).json();
        assert_eq!((&json["windows"], &json["tokens"]), (&windows.len().into(), &losses.len().into()));
        let (loss, error) = mean_and_error(&losses);
        assert_close(&json["loss"], loss);
        assert_close(&json["loss_stderr"], error);
    }
}

#[test]
fn perplexity_json() {
    let text = text_file(TEXT.as_bytes());
    let done = perplexity(&text, &["--ctx", "8", "--json"]);
    assert_eq!(done.stderr, "");
    let json = done.json();
    assert_eq!(
        keys(&json),
        [
            "activations",
            "bytes",
            "complete",
            "context",
            "kv_cache",
            "loss",
            "loss_stderr",
            "model",
            "nats_per_byte",
            "perplexity",
            "perplexity_stderr",
            "stride",
            "text_tokens",
            "tokens",
            "tokens_per_second",
            "windows",
            "windows_wanted"
        ]
    );
    let n = tokenize(TEXT).len();
    assert_eq!(json["text_tokens"], n);
    assert_eq!((&json["windows"], &json["windows_wanted"]), (&(n / 8).into(), &(n / 8).into()));
    // Tokens 5, 6 and 7 of each.
    assert_eq!(json["tokens"], n / 8 * 3);
    assert_eq!(
        (&json["complete"], &json["stride"], &json["context"]),
        (&true.into(), &Value::Null, &8.into())
    );
    assert!(number(&json["tokens_per_second"]) > 0.0);
    // One scored token has no spread.
    let json = perplexity(&text, &["--ctx", "3", "--windows", "1", "--json"]).json();
    assert_eq!((&json["tokens"], &json["loss_stderr"]), (&1.into(), &Value::Null));
}

#[test]
fn for_people() {
    let text = text_file(TEXT.as_bytes());
    let shown = perplexity(&text, &["--ctx", "8"]).ok();
    for part in ["tokens scored", "nats/token", "nats/byte", "perplexity  ", " +- ", "tokens/s", "isa "] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
    let shown = kl(&text, &["--ctx", "8"]).ok();
    for part in ["KL mean", "KL median", "KL 90%", "KL 99%", "KL max", "same top", "(base)", "(model)"] {
        assert!(shown.contains(part), "{part:?} is not in {shown}");
    }
}

#[test]
fn a_model_is_no_distance_from_itself() {
    let text = text_file(TEXT.as_bytes());
    for kind in ["f32", "int8"] {
        let args =
            ["--ctx", "9", "--stride", "4", "--activations", kind, "--base-activations", kind, "--json"];
        let json = kl(&text, &args).json();
        for key in ["mean", "stderr", "median", "p90", "p99", "max"] {
            assert_eq!(json["kl"][key], 0.0, "{key}, {json}");
        }
        assert_eq!(json["same_top_percent"], 100.0);
        assert_eq!(json["base"], json["model"]);
        assert_eq!(
            (&json["loss_difference"]["value"], &json["loss_difference"]["stderr"]),
            (&0.0.into(), &0.0.into())
        );
        let alone = perplexity(&text, &[&args[..6], &["--json"]].concat()).json();
        for key in ["loss", "loss_stderr", "perplexity", "perplexity_stderr"] {
            assert_eq!(json["model"][key], alone[key], "{key}");
        }
        for key in ["tokens", "windows", "text_tokens", "context", "stride"] {
            assert_eq!(json[key], alone[key], "{key}");
        }
    }
}

#[test]
fn divergence_is_what_the_logits_say() {
    let text = text_file(TEXT.as_bytes());
    let ids = tokenize(TEXT);
    let ctx = ids.len().to_string();
    // The base's defaults are f32 throughout, the model's the f16 KV cache.
    let base = logits(&ids, &["--activations", "f32"]);
    let model = logits(&ids, &[]);
    let mut divergences = Vec::new();
    let mut same = 0;
    for (p, q) in base.iter().zip(&model).take(ids.len() - 1) {
        let top = |x: &[f64]| (0..x.len()).max_by(|&a, &b| x[a].total_cmp(&x[b]).then(b.cmp(&a))).unwrap();
        same += usize::from(top(p) == top(q));
        let (p, q) = (surprises(p), surprises(q));
        divergences.push(p.iter().zip(&q).map(|(p, q)| (-p).exp() * (q - p)).sum::<f64>());
    }
    let (mean, error) = mean_and_error(&divergences);
    assert!(mean > 1e-12, "the f16 cache changes nothing: {mean}");
    let json = kl(&text, &["--ctx", &ctx, "--stride", &ctx, "--json"]).json();
    assert_eq!(
        keys(&json),
        [
            "base",
            "complete",
            "context",
            "kl",
            "loss_difference",
            "model",
            "same_top_percent",
            "stride",
            "text_tokens",
            "tokens",
            "tokens_per_second",
            "windows",
            "windows_wanted"
        ]
    );
    assert_eq!(json["tokens"], divergences.len());
    // Relative to the value: it is small, and both sums round.
    let near = |got: &Value, expected: f64| {
        let got = number(got);
        assert!((got - expected).abs() <= 1e-13 + 1e-6 * expected, "{got} is not {expected}");
    };
    near(&json["kl"]["mean"], mean);
    near(&json["kl"]["stderr"], error);
    divergences.sort_by(f64::total_cmp);
    near(&json["kl"]["max"], *divergences.last().unwrap());
    assert_close(&json["same_top_percent"], 100.0 * same as f64 / divergences.len() as f64);
    let cache = |side: &str| json[side]["kv_cache"].as_str().unwrap().to_owned();
    assert_eq!((cache("base").as_str(), cache("model").as_str()), ("f32", "f16"));
    let json = kl(&text, &["--ctx", &ctx, "--base-kv-cache", "f16", "--json"]).json();
    assert_eq!(json["kl"]["max"], 0.0, "its F16 matrices take f32 activations either way");
}

#[test]
fn models_must_have_the_same_vocabulary() {
    let text = text_file(TEXT.as_bytes());
    let other = chat_model(&text.dir);
    let error = kl(&text, &["--base", other.to_str().unwrap(), "--ctx", "8"]).error();
    assert_eq!(error, "the base has 258 tokens, the model 2048: expected the same vocabulary");
    // As many, but the last is written otherwise.
    let bytes = std::fs::read(&other).unwrap();
    let at = bytes.windows(4).position(|w| w == b"</s>").unwrap();
    let mut changed = bytes;
    changed[at..at + 4].copy_from_slice(b"<|s>");
    let path = text.dir.path().join("changed.gguf");
    std::fs::write(&path, changed).unwrap();
    let models = ["--base", path.to_str().unwrap(), "--model", other.to_str().unwrap()];
    let error = kl(&text, &[&models[..], &["--ctx", "8"]].concat()).error();
    assert!(error.ends_with(" in the model: expected the same vocabulary"), "{error}");
    assert!(error.starts_with("token 257 is \"<|s>\" in the base and \"</s>\""), "{error}");
}

/// Copies a model with changes to its metadata and to its tensors' bytes, by name.
fn rewrite(from: &Path, to: &Path, change: impl Fn(&mut Metadata), tensor: impl Fn(&str, &mut [u8])) {
    let gguf = Gguf::open(from).unwrap();
    let mut metadata = gguf.metadata().clone();
    change(&mut metadata);
    let mut writer = GgufWriter::new(Vec::new(), &metadata, gguf.tensors()).unwrap();
    for info in gguf.tensors() {
        let mut bytes = gguf.bytes(info).to_vec();
        tensor(&info.name, &mut bytes);
        writer.write_tensor(&info.name, &bytes).unwrap();
    }
    std::fs::write(to, writer.finish().unwrap()).unwrap();
}

#[test]
fn logits_that_are_no_numbers_are_an_error() {
    let text = text_file(b"abcdefghijk");
    let whole = chat_model(&text.dir);
    let broken = text.dir.path().join("broken.gguf");
    // The row of one token's logits, which is also its embedding; the text does not have the token.
    let ruin = |name: &str, bytes: &mut [u8]| {
        if name == "token_embd.weight" {
            let infinity = half::f16::INFINITY.to_le_bytes();
            bytes[64 * 2 * 5..64 * 2 * 6].chunks_exact_mut(2).for_each(|x| x.copy_from_slice(&infinity));
        }
    };
    rewrite(&whole, &broken, |_| {}, ruin);
    let expected = "the logits after token 0 of a window give no finite loss: the weights may be broken";
    let broken = ["--model", broken.to_str().unwrap(), "--ctx", "5", "--stride", "5", "--json"];
    assert_eq!(perplexity(&text, &broken).error(), expected);
    assert_eq!(kl(&text, &[&broken[..], &["--base", whole.to_str().unwrap()]].concat()).error(), expected);
}

/// The token that begins texts stands at the beginning of each window if the file asks for it.
#[test]
fn a_model_that_begins_texts_begins_windows() {
    let text = text_file(b"abcdefghijk");
    // This vocabulary's bytes are its ids, and 256 begins a text.
    let plain = chat_model(&text.dir);
    let begins = text.dir.path().join("begins.gguf");
    rewrite(&plain, &begins, |metadata| metadata.set("tokenizer.ggml.add_bos_token", true), |_, _| {});

    let windows = |model: &Path, expected: &[&[u64]]| {
        let model = ["--model", model.to_str().unwrap()];
        let json =
            perplexity(&text, &[&model[..], &["--ctx", "6", "--stride", "6", "--json"]].concat()).json();
        let losses: Vec<f64> = expected.iter().flat_map(|ids| expected_losses(ids, 1..6, &model)).collect();
        assert_eq!(json["windows"], expected.len());
        assert_close(&json["loss"], mean_and_error(&losses).0);
        json
    };
    let json = windows(&begins, &[&[256, 97, 98, 99, 100, 101], &[256, 103, 104, 105, 106, 107]]);
    assert_eq!((&json["text_tokens"], &json["bytes"]), (&12.into(), &10.into()));
    let json = windows(&plain, &[&[97, 98, 99, 100, 101, 102]]);
    assert_eq!((&json["text_tokens"], &json["bytes"]), (&11.into(), &5.into()));
}

#[test]
fn a_text_shorter_than_a_window_names_both_numbers() {
    let text = text_file(TEXT.as_bytes());
    let n = tokenize(TEXT).len();
    let expected = format!("{}: the text is {n} tokens long, shorter than one window of 512", text.path);
    assert_eq!(perplexity(&text, &[]).error(), expected);
    assert_eq!(kl(&text, &["--json"]).error(), expected);
    let empty = text_file(b"");
    let error = perplexity(&empty, &["--ctx", "4"]).error();
    assert_eq!(error, format!("{}: the text is 0 tokens long, shorter than one window of 4", empty.path));
}

#[test]
fn wrong_windows_are_errors() {
    let text = text_file(TEXT.as_bytes());
    for (args, expected) in [
        (&["--ctx", "2"][..], "--ctx: windows of 2 tokens score nothing: at least 3 are needed"),
        (
            &["--ctx", "1", "--stride", "1"],
            "--ctx and --stride: windows of 1 tokens score nothing: at least 2 are needed",
        ),
        (
            &["--ctx", "8", "--stride", "9"],
            "--ctx and --stride: a stride of 9: expected 1 to 8, the tokens in a window",
        ),
        (
            &["--ctx", "513"],
            "a context of 513 was asked for; the model is trained for up to 512, the least is 1",
        ),
    ] {
        assert_eq!(perplexity(&text, args).error(), expected);
        assert_eq!(kl(&text, args).error(), expected);
    }
    for usage in [&["--stride", "0"][..], &["--stride", "x"], &["--windows", "0"], &["--base", "x"]] {
        assert_eq!(perplexity(&text, usage).code, Some(2), "{usage:?}");
    }
    assert_eq!(run(&["perplexity"]).code, Some(2));
    assert_eq!(run(&["kl", "--base", "x"]).code, Some(2));
}

#[test]
fn a_text_must_be_there_and_be_utf8() {
    let text = text_file(b"ab\xff");
    let error = perplexity(&text, &["--ctx", "4"]).error();
    assert!(error.starts_with(&format!("{} is not UTF-8: ", text.path)), "{error}");
    let error = run(&["perplexity", "--text", "no/such/file"]).error();
    assert!(error.starts_with("cannot read no/such/file: "), "{error}");
}

#[test]
fn names_of_control_tokens_are_text() {
    let text = text_file("<|endoftext|>".repeat(4).as_bytes());
    let json = perplexity(&text, &["--ctx", "4", "--json"]).json();
    assert!(json["text_tokens"].as_u64().unwrap() > 4, "{json}");
}

/// A stopped run prints what it has and says that it is not all.
#[test]
fn ctrl_c_leaves_the_figures_so_far() {
    // Some 60 thousand windows.
    let text = text_file("The sea was calm. ".repeat(40_000).as_bytes());
    let stop_after = |seconds| {
        let args = ["perplexity", "--text", &text.path, "--ctx", "3", "--json"];
        let mut child = halfbyte(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_secs(seconds));
        assert!(child.try_wait().unwrap().is_none(), "it was done before it could be stopped");
        interrupt(&child);
        let output = child.wait_with_output().unwrap();
        // On a slow machine it may still be reading the text, or its first window.
        (!output.stdout.is_empty()).then(|| Done::from(output))
    };
    let done = [1, 2, 4, 8, 16].into_iter().find_map(stop_after).unwrap();
    assert_eq!(done.code, Some(1), "{done:?}");
    let json: Value = serde_json::from_str(&done.stdout).unwrap();
    let (windows, wanted) = (json["windows"].as_u64().unwrap(), json["windows_wanted"].as_u64().unwrap());
    assert_eq!(json["complete"], false);
    assert!(0 < windows && windows < wanted, "{json}");
    assert_eq!(json["tokens"], windows);
    assert_eq!(done.stderr, format!("error: stopped after {windows} of {wanted} windows\n"));
}
