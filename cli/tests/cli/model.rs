//! Models in other formats on the command line, and files that go wrong while they are used.

use std::fs;
use std::path::Path;

use crate::support::{chat_model, halfbyte, run, temp_dir};

const CHECKPOINTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../goldens/checkpoints");

fn checkpoint(name: &str) -> String {
    format!("{CHECKPOINTS}/{name}")
}

const IDS: &str = "5,17,3,40,41,41,0,27,12,45,33,8";

/// The top logit after each token.
fn tops(args: &[&str]) -> Vec<f64> {
    let mut all = vec!["logits", "--ids", IDS, "--top", "1", "--json"];
    all.extend(args);
    let json = run(&all).json();
    let positions = json["positions"].as_array().unwrap();
    positions.iter().map(|p| p["top_logits"][0].as_f64().unwrap()).collect()
}

fn recorded_tops(name: &str) -> Vec<f64> {
    let text = fs::read_to_string(format!("{CHECKPOINTS}.json")).unwrap();
    let golden: serde_json::Value = serde_json::from_str(&text).unwrap();
    let top = |row: &serde_json::Value| {
        row.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).fold(f64::MIN, f64::max)
    };
    golden["logits"][name].as_array().unwrap().iter().map(top).collect()
}

#[track_caller]
fn near(a: &[f64], b: &[f64], bound: f64) {
    assert_eq!(a.len(), b.len());
    let distance = a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(distance < bound, "{distance}");
}

#[test]
fn directories_run_as_they_are() {
    for name in ["hf_llama", "mlx_llama_mixed_g64"] {
        let (model, want) = (checkpoint(name), recorded_tops(name));
        near(&tops(&["--model", &model, "--activations", "f32"]), &want, 2e-4);
        // int8 activations lose some of it.
        near(&tops(&["--model", &model]), &want, 0.3);
    }
}

#[test]
fn weights_are_quantized_when_loaded() {
    let (model, want) = (checkpoint("hf_llama"), recorded_tops("hf_llama"));
    near(&tops(&["--model", &model, "--load-as", "q8_0", "--activations", "f32"]), &want, 0.1);
    // The same as quantizing first.
    let dir = temp_dir();
    let out = dir.path().join("q4.gguf").display().to_string();
    run(&["quantize", &model, &out, "--type", "q4_0", "--method", "optimal"]).ok();
    let quantized = tops(&["--model", &out, "--activations", "f32"]);
    let loaded = tops(&["--model", &model, "--load-as", "q4_0:optimal", "--activations", "f32"]);
    assert_eq!(loaded, quantized);
    for wrong in ["iq2_xs", "q8_0:fit", "q4_1:optimal", "q4_0:", "q4_0:gptq", "f16"] {
        let done = run(&["logits", "--ids", "1", "--model", &model, "--load-as", wrong]);
        assert_eq!(done.code, Some(2), "{wrong}");
        let expected = match wrong {
            "iq2_xs" | "f16" => format!("{wrong:?}: expected q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, "),
            "q8_0:fit" => "expected nothing behind q8_0: it is quantized in one way".to_owned(),
            "q4_1:optimal" => "expected max or fit behind q4_1:".to_owned(),
            _ => "expected fit, max, max7 or optimal behind q4_0:".to_owned(),
        };
        assert!(done.stderr.contains(&expected), "{}", done.stderr);
    }
}

#[test]
fn what_a_directory_is_and_lacks() {
    let model = checkpoint("mlx_llama_4bit_g32");
    let json = run(&["inspect", &model, "--json"]).json();
    assert_eq!(json["format"], "MLX, quantized, 1 safetensors file");
    assert!(json["version"].is_null());
    assert_eq!(json["metadata"]["general.architecture"], "llama");
    assert!(run(&["inspect", &model]).ok().contains("MLX4_G32"));
    let error = run(&["run", "--model", &model, "--prompt", "x"]).error();
    assert_eq!(error, format!("{model}: expected tokenizer.json beside config.json"));
    let dir = temp_dir();
    let error = run(&["run", "--model", &dir.path().display().to_string()]).error();
    assert!(error.contains("is a directory without config.json: expected a GGUF file, or"), "{error}");
}

/// A limit of the shell's stands for a full disk: the write fails in the middle.
#[cfg(unix)]
#[test]
fn a_disk_that_is_full_while_quantizing_loses_nothing() {
    let dir = temp_dir();
    let (input, out) = (chat_model(&dir), dir.path().join("out.gguf"));
    fs::write(&out, "old").unwrap();
    let script = "ulimit -f 24; exec \"$0\" \"$@\"";
    let done: crate::support::Done = std::process::Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_halfbyte"), "quantize"])
        .args([&input, &out])
        .args(["--type", "q8_0", "--force"])
        .output()
        .unwrap()
        .into();
    let error = done.error();
    assert!(error.contains("out.gguf: cannot write ") && error.contains("File too large"), "{error}");
    assert_eq!(fs::read_to_string(&out).unwrap(), "old");
    let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|f| f.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["chat.gguf", "out.gguf"]);
}

/// The weights are read from the mapped file: when it is cut, there is nothing to go on with, but a message.
#[cfg(target_os = "linux")]
#[test]
fn a_model_that_is_cut_while_it_runs_is_an_error() {
    use std::io::Write;
    use std::process::Stdio;
    use std::time::{Duration, Instant};

    let dir = temp_dir();
    let model = chat_model(&dir);
    let path = model.display().to_string();
    let mut child = halfbyte(&["chat", "--model", &path, "--no-pack", "-n", "4"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let maps = format!("/proc/{}/maps", child.id());
    let deadline = Instant::now() + Duration::from_secs(20);
    while !fs::read_to_string(&maps).unwrap_or_default().contains("chat.gguf") {
        assert!(Instant::now() < deadline, "the model is never mapped");
        std::thread::sleep(Duration::from_millis(10));
    }
    // What reads the header has done so long before; if not, the error is another and the test says so.
    std::thread::sleep(Duration::from_millis(700));
    cut(&model);
    let _ = child.stdin.take().unwrap().write_all(b"hello\n");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: a model file was cut short"), "{stderr}");
}

#[cfg(target_os = "linux")]
fn cut(path: &Path) {
    fs::OpenOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
}
