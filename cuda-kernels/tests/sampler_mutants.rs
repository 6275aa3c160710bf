//! Mistakes in the sampler's kernels, made in their text: each gives another token than the twin on rows that
//! were chosen to show it, or is seen by the emulator.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Arg, Device};
use halfbyte_cuda_emulator::FaultKind;
use halfbyte_cuda_kernels::{Draw, reference};
use halfbyte_testing::Rng;

/// Ten slices, the last of them short, and rows that do not start at a vector.
const VOCABULARY: usize = 9 * 4096 + 101;
const SLICES: usize = 10;

/// A row of logits and how its token is chosen.
struct Row {
    logits: Vec<f32>,
    draw: Draw,
}

/// Rows on which the mistakes below show.
fn rows() -> Vec<Row> {
    let mut random = Rng(70);
    let draw = |temperature, top_k, position| Draw { temperature, top_k, seed: 7, position };
    let mut all = Vec::new();
    let mut row = |logits: Vec<f32>, draw: Draw| all.push(Row { logits, draw });
    // The largest in the second slice, in the ninth, in the tenth.
    for token in [5_000, 8 * 4096 + 9, VOCABULARY - 1] {
        let mut logits: Vec<f32> = (0..VOCABULARY).map(|_| random.f32() * 3.0).collect();
        logits[token] = 20.0;
        row(logits, Draw::GREEDY);
    }
    // Few levels: ties within a thread, between lanes, warps and slices.
    let ties: Vec<f32> = (0..VOCABULARY).map(|_| random.below(3) as f32 - 2.0).collect();
    row(ties.clone(), Draw::GREEDY);
    // -0 before 0, in one slice and in two; NaN before the only number.
    let mut zeros = vec![-1.0; VOCABULARY];
    (zeros[7], zeros[300], zeros[5_000]) = (-0.0, 0.0, 0.0);
    row(zeros, Draw::GREEDY);
    let mut broken = vec![f32::NAN; VOCABULARY];
    broken[9_000] = -1e38;
    row(broken, Draw::GREEDY);
    // Draws from a few of many equals, from the best 32, from all.
    for position in 0..4 {
        row(ties.clone(), draw(5.0, 20, position));
        let logits: Vec<f32> = (0..VOCABULARY).map(|_| random.f32() * 4.0).collect();
        row(logits.clone(), draw(2.0, 32, position));
        row(logits, draw(1.0, 0, position));
    }
    all
}

/// The fields of `sampler.cu`'s 32 `Rule`s.
fn rules(rows: &[Row]) -> &'static [u32] {
    let mut words = vec![0; 32 * 6];
    for (rule, Row { draw, .. }) in words.chunks_exact_mut(6).zip(rows) {
        let inverse = if draw.temperature == 0.0 { 0.0 } else { 1.0 / draw.temperature };
        let halves = |x: u64| [x as u32, (x >> 32) as u32];
        rule[..2].copy_from_slice(&[inverse.to_bits(), draw.top_k as u32]);
        rule[2..4].copy_from_slice(&halves(draw.seed));
        rule[4..].copy_from_slice(&halves(draw.position));
    }
    words.leak()
}

/// The tokens of all rows by the kernels as `edit` leaves their texts.
fn sampled(rows: &[Row], seed: u64, edit: impl Fn(&str, &str) -> String) -> Result<Vec<u32>, FaultKind> {
    let device = Device::new(seed);
    let (m, rules) = (rows.len(), Arg::Words(rules(rows)));
    let logits: Vec<f32> = rows.iter().flat_map(|row| row.logits.iter().copied()).collect();
    let logits = device.upload(&logits);
    let candidates = device.reserve::<u64>(m * SLICES * 32);
    let tokens = device.reserve::<u32>(m);
    let run = |entry: &'static str, grid, args: &[Arg]| {
        let ran = device.try_run_edited(entry, grid, args, |text| edit(entry, text));
        ran.map_err(|fault| fault.kind).map(drop)
    };
    run("sampler_slices", [SLICES, m], &[logits, candidates, Arg::U32(VOCABULARY), rules])?;
    run("sampler_pick", [m, 1], &[candidates, tokens, Arg::U32(SLICES), rules])?;
    Ok(device.download_written(tokens, m))
}

/// Every line of a text for which `change` has another one.
fn lines(text: &str, change: impl Fn(&str) -> Option<String>) -> String {
    text.lines().map(|line| change(line).unwrap_or_else(|| line.to_owned()) + "\n").collect()
}

/// The operands of a line that is this instruction.
fn operands<'a>(line: &'a str, instruction: &str) -> Option<Vec<&'a str>> {
    let rest = line.trim().strip_prefix(instruction)?.strip_suffix(';')?;
    Some(rest.split(',').map(str::trim).collect())
}

/// Of equals the highest token comes first: keys hold the token in place of its complement.
fn highest_of_equals(entry: &str, text: &str) -> String {
    lines(text, |line| {
        if let Some(parts) = operands(line, "not.b32") {
            return Some(format!("mov.u32 {}, {};", parts[0], parts[1]));
        }
        // ~(token + j) is -1 - j - token.
        let to = operands(line, "sub.s32").filter(|_| entry == "sampler_slices")?[0];
        Some(format!("{line} not.b32 {to}, {to};"))
    })
}

#[test]
fn every_mistake_is_seen() {
    let rows = rows();
    let want: Vec<u32> =
        rows.iter().map(|row| reference::sample(&row.logits, row.draw).unwrap_or(u32::MAX)).collect();
    // Slices 0 to 7 are a warp's first load each, 8 and 9 the second one of two warps.
    let slice_ignored = |which: usize| {
        move |entry: &str, text: &str| match entry {
            "sampler_pick" => {
                let load = |line: &str| Some(operands(line, "ld.global.u64")?[0].to_owned());
                let to = text.lines().filter_map(load).nth(which).unwrap();
                let loads = format!("ld.global.u64 \t{to},");
                assert_eq!(text.matches(&loads).count(), 1);
                lines(text, |line| line.contains(&loads).then(|| format!("mov.u64 {to}, 0;")))
            }
            _ => text.to_owned(),
        }
    };
    let in_all = |from: &'static str, to: &'static str| {
        move |_: &str, text: &str| {
            assert!(text.contains(from), "no {from:?}");
            text.replace(from, to)
        }
    };
    let no_barrier = |name: &'static str| {
        move |entry: &str, text: &str| {
            assert!(text.contains("bar.sync \t0;"));
            if entry == name { text.replace("bar.sync \t0;", "") } else { text.to_owned() }
        }
    };
    type Edit<'a> = Box<dyn Fn(&str, &str) -> String + 'a>;
    let mistakes: Vec<(&str, Edit<'_>)> = vec![
        ("a slice's warps do not wait", Box::new(no_barrier("sampler_slices"))),
        ("the merge's warps do not wait", Box::new(no_barrier("sampler_pick"))),
        ("of equals the highest token", Box::new(highest_of_equals)),
        ("the merge ignores the first eight slices", Box::new(slice_ignored(0))),
        ("the merge ignores the ninth and tenth slice", Box::new(slice_ignored(1))),
        ("a step takes the last step's key again", Box::new(in_all("setp.lt.u64", "setp.le.u64"))),
        ("NaN is above all numbers", Box::new(in_all("setp.nan.f32", "setp.lt.f32"))),
        ("-0 is below 0", Box::new(in_all("0f00000000", "0f80000000"))),
    ];
    for seed in [0, 1] {
        let right = sampled(&rows, seed, |_, text| text.to_owned());
        assert_eq!(right.as_ref(), Ok(&want), "seed {seed}");
        for (name, edit) in &mistakes {
            let got = sampled(&rows, seed, edit);
            let wrong =
                got.as_ref().map_or(rows.len(), |got| got.iter().zip(&want).filter(|(a, b)| a != b).count());
            println!("{name}: {:?}, {wrong} rows", got.as_ref().err());
            assert!(wrong > 0, "nobody sees: {name}");
        }
    }
}
