//! Bytes of the `gguf` Python package and of MLX, and the recorded errors of the scale rules.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::{POISON_0, POISON_1, f32s, golden, hex};
use half::{bf16, f16};
use halfbyte_q4::affine::{self, AffineScale, GroupSize};
use halfbyte_q4::fit::{GroupFit, fit_group, max_rule_group, max7_group, optimal_group};
use halfbyte_q4::{q4_1_row, q4_row_max};
use serde_json::Value;

#[test]
fn q4_0_and_q4_1_bytes_equal_the_gguf_package() {
    let gguf = &golden("format_bytes.json")["gguf"];
    let rows = gguf["x"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for (i, row) in rows.iter().enumerate() {
        let x = f32s(row);
        let mut q4_0 = vec![POISON_0; x.len() / 32];
        q4_row_max(&x, &mut q4_0).unwrap();
        assert_eq!(hex(bytemuck::cast_slice(&q4_0)), gguf["Q4_0"][i].as_str().unwrap());
        let mut q4_1 = vec![POISON_1; x.len() / 32];
        q4_1_row(&x, &mut q4_1).unwrap();
        assert_eq!(hex(bytemuck::cast_slice(&q4_1)), gguf["Q4_1"][i].as_str().unwrap());
    }
}

/// One MLX entry: packed words, scales, biases and dequantized weights, all equal.
fn check_mlx<S: AffineScale + PartialEq>(entry: &Value) {
    let size = entry["group"].as_u64().unwrap() as usize;
    let group = GroupSize::try_from(size).unwrap();
    let stored = |v: &Value| -> Vec<S> { f32s(v).into_iter().map(S::from_f32).collect() };
    for (i, row) in entry["w"].as_array().unwrap().iter().enumerate() {
        let x = f32s(row);
        let mut packed = vec![0; x.len() / 8];
        let mut scales = vec![S::from_f32(f32::NAN); x.len() / size];
        let mut biases = scales.clone();
        affine::quantize_row(&x, group, &mut packed, &mut scales, &mut biases).unwrap();
        let words: Vec<u64> = packed.iter().map(|&w| u64::from(w)).collect();
        assert_eq!(Value::from(words), entry["packed_u32"][i]);
        assert_eq!(scales, stored(&entry["scales"][i]));
        assert_eq!(biases, stored(&entry["biases"][i]));
        let mut out = vec![f32::NAN; x.len()];
        affine::dequantize_row(&packed, &scales, &biases, group, &mut out).unwrap();
        assert_eq!(out, f32s(&entry["dequantized"][i]));
    }
}

#[test]
fn affine_groups_equal_mlx() {
    let golden = golden("format_bytes.json");
    let entries = golden["mlx"].as_array().unwrap();
    assert_eq!(entries.len(), 9);
    for entry in entries {
        match entry["dtype"].as_str().unwrap() {
            "bfloat16" => check_mlx::<bf16>(entry),
            "float16" => check_mlx::<f16>(entry),
            "float32" => check_mlx::<f32>(entry),
            other => panic!("dtype {other}"),
        }
    }
}

#[test]
fn group_errors_equal_the_recorded_ones() {
    let golden = golden("q4_groups.json");
    let groups = golden["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 260);
    for (i, entry) in groups.iter().enumerate() {
        let x: [f32; 32] = f32s(&entry["x"]).try_into().unwrap();
        let recorded = |name: &str| entry[name].as_f64().unwrap();
        // Both are f64 sums of 32 squares, but the recorded ones may be differences of larger numbers.
        let slack = 1e-12 * recorded("sum_sq");
        let check = |name: &str, fit: GroupFit| {
            let error = recorded(name);
            assert!((fit.sse - error).abs() <= slack, "group {i} {name}: {} for {error}", fit.sse);
            let w = fit.codes.map(|q| fit.scale * f64::from(q));
            assert!((common::sse(&x, &w) - fit.sse).abs() <= slack, "group {i} {name}: its own error");
            assert!(fit.codes.iter().all(|q| (-8..=7).contains(q)));
        };
        check("sse_max7", max7_group(&x));
        check("sse_max_rule", max_rule_group(&x));
        let fit = fit_group(&x);
        check("sse_fit19", fit);
        check("sse_optimum", optimal_group(&x));
        assert!(fit.sse >= recorded("sse_optimum") - slack, "group {i} beats the optimum");
    }
}
