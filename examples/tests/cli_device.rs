//! `--device`: the same model on a CUDA device, here the emulator.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod cli_support;

use cli_support::run;

const COMMON: [&str; 8] =
    ["run", "--prompt", "The captain looked", "-n", "5", "--temperature", "0", "--json"];

fn reply(args: &[&str]) -> serde_json::Value {
    run(&[&COMMON[..], args].concat()).json()
}

#[test]
fn the_emulator_replies_as_the_cpu_does() {
    let cpu = reply(&["--activations", "f32"]);
    assert_eq!(cpu["ids"].as_array().unwrap().len(), 5);
    for args in [&[][..], &["--prompt-precision", "int8"], &["--kv-cache", "fp8"], &["--speculate", "auto"]] {
        let got = reply(&[&["--device", "cuda-emulator"], args].concat());
        // The best token is far enough ahead of the others in this text.
        assert_eq!(got["ids"], cpu["ids"], "{args:?}");
        assert_eq!(got["text"], cpu["text"]);
    }
}

#[test]
fn what_a_device_has_not_is_refused_by_name() {
    let refused = |args: &[&str]| run(&[&COMMON[..], args].concat()).error();
    assert_eq!(
        refused(&["--device", "cuda-emulator", "--kv-cache", "q8"]),
        "--kv-cache q8: on a CUDA device expected bf16 or fp8"
    );
    assert_eq!(
        refused(&["--prompt-precision", "int8"]),
        "--prompt-precision is for CUDA devices; on the CPU --activations says the like"
    );
    assert_eq!(
        run(&["bench", "--device", "cuda-emulator"]).error(),
        "--device cuda-emulator: only `run` and `chat` compute on other devices than the CPU"
    );
    // Where there is no GPU the error says what is missing, and what else there is.
    let done = run(&[&COMMON[..], &["--device", "cuda"]].concat());
    if done.code != Some(0) {
        let error = done.error();
        assert!(error.starts_with("--device cuda (cuda-emulator needs no GPU, and is slow): "), "{error}");
        assert!(error.contains("libcuda.so.1") || error.contains("GPU"), "{error}");
    }
}
