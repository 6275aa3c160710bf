//! `halfbyte bench`, `inspect` and `doctor`.

use crate::support::{chat_model, keys, plain_model, run, temp_dir};
use halfbyte_cpu_kernels::Isa;
use serde_json::json;

#[test]
fn bench_has_a_prompt_and_a_decode_test_for_each_number_of_threads() {
    let done = run(&["bench", "-p", "32", "-n", "8", "-t", "1,2", "--reps", "3", "--json"]);
    let json = done.json();
    assert_eq!(json["isa"], Isa::fastest().name());
    let results = json["results"].as_array().unwrap();
    let tests: Vec<_> =
        results.iter().map(|r| (r["threads"].clone(), r["n_prompt"].clone(), r["n_gen"].clone())).collect();
    let test = |threads, n_prompt, n_gen| (json!(threads), json!(n_prompt), json!(n_gen));
    assert_eq!(tests, [test(1, 32, 0), test(1, 0, 8), test(2, 32, 0), test(2, 0, 8)]);
    for result in results {
        let rate = &result["tokens_per_second"];
        assert_eq!(keys(rate), ["max", "median", "min"]);
        let value = |key: &str| rate[key].as_f64().unwrap();
        assert!(
            0.0 < value("min") && value("min") <= value("median") && value("median") <= value("max"),
            "{rate}"
        );
    }
}

#[test]
fn bench_leaves_out_tests_of_nothing() {
    let tests = |args: &[&str]| {
        let json = run(&[&["bench", "--reps", "1", "--json", "--isa", "scalar"], args].concat()).json();
        assert_eq!(json["isa"], "scalar");
        json["results"].as_array().unwrap().len()
    };
    assert_eq!(tests(&["-p", "0", "-n", "2"]), 1);
    assert_eq!(tests(&["-p", "2", "-n", "0"]), 1);
    assert_eq!(tests(&["-p", "0", "-n", "0"]), 0);
}

#[test]
fn bench_decodes_behind_as_many_tokens_as_asked_for() {
    let bench =
        |ctx| run(&["bench", "-p", "4", "-n", "2", "--depth", "30", "--ctx", ctx, "--reps", "1", "--json"]);
    let json = bench("32").json();
    let depths: Vec<_> = json["results"].as_array().unwrap().iter().map(|r| r["depth"].clone()).collect();
    assert_eq!(depths, [0, 30]);
    // The last token needs the place of the 32nd.
    assert!(bench("31").error().contains("32 tokens long"));
}

#[test]
fn bench_for_people_is_a_table() {
    let text = run(&["bench", "-p", "4", "-n", "2", "--reps", "1", "--threads", "1"]).ok();
    assert_eq!(text.lines().count(), 4, "{text}");
    assert!(text.contains("pp 4") && text.contains("tg 2"), "{text}");
}

#[test]
fn bench_refuses_what_does_not_fit() {
    let error = run(&["bench", "-p", "513", "-n", "0"]).error();
    assert_eq!(error, "a context of 513 was asked for; the model is trained for up to 512, the least is 1");
    let error = run(&["bench", "-p", "32", "-n", "0", "--ctx", "16"]).error();
    assert_eq!(error, "the longest test is 32 tokens long, the context holds 16; --ctx can be raised to 512");
    assert_eq!(run(&["bench", "-t", "1,0"]).code, Some(2));
    assert_eq!(run(&["bench", "--reps", "0"]).code, Some(2));
}

#[test]
fn inspect_shows_metadata_and_tensors() {
    let dir = temp_dir();
    let path = chat_model(&dir);
    let model = path.to_str().unwrap();
    let json = run(&["inspect", model, "--json"]).json();
    assert_eq!((&json["version"], &json["alignment"]), (&json!(3), &json!(32)));
    assert_eq!(json["file_bytes"], json!(std::fs::metadata(&path).unwrap().len()));
    assert_eq!(json["metadata"]["general.architecture"], "llama");
    assert_eq!(json["metadata"]["llama.context_length"], 65536);
    // Shortest digits: 1e-5 as f32 and not as the nearest f64 to it.
    assert_eq!(json["metadata"]["llama.attention.layer_norm_rms_epsilon"], json!(1e-5));
    assert_eq!(
        json["metadata"]["halfbyte.long"],
        json!({"type": "f32", "length": 100, "first": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0]})
    );
    assert_eq!(json["metadata"]["tokenizer.ggml.merges"], json!([]));
    assert_eq!(json["tensors"].as_array().unwrap().len(), 11);
    assert_eq!(
        json["tensors"][0],
        json!({"name": "token_embd.weight", "type": "F16", "shape": [64, 258], "bytes": 33024, "supported": true})
    );
    assert_eq!(
        json["totals"],
        json!([
            {"type": "F16", "tensors": 8, "elements": 45184, "bytes": 90368, "supported": true},
            {"type": "F32", "tensors": 3, "elements": 192, "bytes": 768, "supported": true},
        ])
    );
    assert_eq!(json["parameters"], 45184 + 192);
    let text = run(&["inspect", model]).ok();
    for part in ["GGUF v3", "llama.context_length = 65536", "[f32; 100] 0.0, 1.0", "64 x 258", "11 tensors"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    // --model is taken as well, and without both it is the embedded model.
    assert_eq!(run(&["--model", model, "inspect"]).ok(), text);
    assert!(run(&["inspect"]).ok().starts_with("halfbyte-tiny (embedded): GGUF v3"));
}

/// A file with tensors that can't be computed with, and an architecture nobody knows, can still be looked into.
#[test]
fn inspect_works_for_files_that_cannot_be_run() {
    use halfbyte_gguf::{GgufWriter, Metadata, TensorInfo, TensorType};
    let dir = temp_dir();
    let path = dir.path().join("odd.gguf");
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "mamba");
    let tensor = TensorInfo::new("x", TensorType::Q8_K, &[256]).unwrap();
    let bytes = vec![0; tensor.n_bytes];
    let mut writer = GgufWriter::new(Vec::new(), &metadata, &[tensor]).unwrap();
    writer.write_tensor("x", &bytes).unwrap();
    std::fs::write(&path, writer.finish().unwrap()).unwrap();
    let model = path.to_str().unwrap();

    let json = run(&["inspect", model, "--json"]).json();
    assert_eq!(json["tensors"][0]["supported"], false);
    assert!(run(&["inspect", model]).ok().contains("can't compute with it"));

    // The same bytes under a number that is no type yet: what can be known is shown.
    let mut bytes = std::fs::read(&path).unwrap();
    let dims = [1_u32.to_le_bytes().as_slice(), &256_u64.to_le_bytes(), &15_u32.to_le_bytes()].concat();
    let at = bytes.windows(dims.len()).position(|window| window == dims).unwrap() + 12;
    bytes[at..at + 4].copy_from_slice(&97_u32.to_le_bytes());
    let newer = dir.path().join("newer.gguf");
    std::fs::write(&newer, bytes).unwrap();
    let newer = newer.to_str().unwrap();
    let json = run(&["inspect", newer, "--json"]).json();
    assert_eq!(
        json["tensors"][0],
        json!({"name": "x", "type": "id 97", "shape": [256], "bytes": null, "supported": false})
    );
    assert_eq!(
        json["totals"],
        json!([{"type": "id 97", "tensors": 1, "elements": 256, "bytes": null, "supported": false}])
    );
    let text = run(&["inspect", newer]).ok();
    assert!(text.contains("id 97") && text.contains("unknown"), "{text}");
    let error = run(&["run", "--model", model]).error();
    // All names are in the runner's tests.
    let expected = format!("{model}: architecture \"mamba\" is not supported; supported: llama, qwen2, ");
    assert!(error.starts_with(&expected), "{error}");
    let done = run(&["doctor", "--model", model, "--json"]);
    assert_eq!(done.code, Some(1));
    let json: serde_json::Value = serde_json::from_str(&done.stdout).unwrap();
    assert!(json["model"].is_null());
    assert!(done.stderr.starts_with("error: the model can't be run: "), "{}", done.stderr);
}

#[test]
fn doctor_names_paths_threads_memory_and_what_is_slow() {
    let json = run(&["doctor", "--json", "--threads", "2"]).json();
    let available: Vec<&str> = Isa::available().into_iter().map(Isa::name).collect();
    assert_eq!(json["isa"]["available"], json!(available));
    assert_eq!(json["isa"]["known"], json!(Isa::known()));
    assert_eq!(json["isa"]["selected"], Isa::fastest().name());
    assert_eq!((&json["threads"]["count"], &json["threads"]["reason"]), (&json!(2), &json!("--threads")));
    assert_eq!(json["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(json["model"]["trained_context"], 512);
    // 4 layers, keys and values of 2 heads of 64, 2 bytes.
    assert_eq!(json["model"]["kv_cache_bytes"], 4 * 2 * 128 * 512 * 2);
    if cfg!(target_os = "linux") {
        assert!(json["memory"]["total"].as_u64().unwrap() > 0);
    }
    let slow = |args: &[&str]| {
        let json = run(&[&["doctor", "--json"], args].concat()).json();
        json["slow"]
            .as_array()
            .unwrap()
            .iter()
            .map(|s| s.as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
            .join("\n")
    };
    assert_eq!(slow(&[]).contains("this is a debug build"), cfg!(debug_assertions));
    assert_eq!(
        slow(&["--isa", "scalar"]).contains("scalar"),
        Isa::available().len() > 1 || Isa::known().len() > 1
    );
    assert!(slow(&["--threads", "1024"]).contains("1024 threads (--threads) share"));
    let dir = temp_dir();
    let f16 = plain_model(&dir);
    let text = run(&["doctor", "--model", f16.to_str().unwrap()]).ok();
    assert!(text.contains("8 tensors (88.2 KiB) are F16, which has no int8 kernel"), "{text}");
    assert!(text.contains("no chat template"), "{text}");
}

#[test]
fn doctor_says_what_is_rounded_and_what_measures_it() {
    let dir = temp_dir();
    let (f16, q8_0) = (plain_model(&dir), dir.path().join("q8_0.gguf"));
    let (f16, q8_0) = (f16.to_str().unwrap(), q8_0.to_str().unwrap());
    run(&["quantize", f16, q8_0, "--type", "q8_0"]).ok();
    let rounding = |args: &[&str]| {
        let text = run(&[&["doctor", "--model"], args].concat()).ok();
        let line = text.lines().find_map(|line| line.strip_prefix("rounding   "));
        line.unwrap_or_else(|| panic!("no line on rounding: {text}")).to_owned()
    };
    let measure = "`halfbyte kl --model M --text FILE` measures what that costs";
    for (kind, codes) in [("int8", "8 bits"), ("auto", "8 bits, outliers to 16"), ("int16", "16 bits")] {
        let said =
            format!("{kind} activations: the inputs of 8 of 8 matrices are rounded to {codes}; {measure}");
        assert_eq!(rounding(&[q8_0, "--activations", kind]), said);
    }
    assert_eq!(rounding(&[q8_0, "--activations", "f32"]), "f32 activations: no input of a matrix is rounded");
    let none = "auto activations, but no matrix has an int8 kernel: no input is rounded";
    assert_eq!(rounding(&[f16]), none);
}
