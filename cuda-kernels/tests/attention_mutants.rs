//! The emulator sees what a missing barrier or a weaker wait does to the attention kernels: each is taken out of the text
//! in turn.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{Activations as _, Arg, Device};
use half::bf16;
use halfbyte_cuda_emulator::{FaultKind, LaunchStats};
use halfbyte_testing::Rng;

const DIM: usize = 64;
/// As many rows as positions: five tiles of each.
const ROWS: usize = 5 * 64;

/// Kernels, and how many of their barriers are needed when every block has work.
///
/// Prefill: for queries, keys, values, and outputs through shared memory; the last not with two slots of which the outputs
/// take the keys' one (fp8, but for wide blocks, whose outputs take both). Backward: for keys, values; for a tile of lines. Their last barrier is for blocks without work.
const KERNELS: [(&str, usize, usize); 6] = [
    ("attention_prefill_bf16_d64", 4, 4),
    ("attention_prefill_fp8_d64", 4, 3),
    ("attention_prefill_bf16_d64_wide", 4, 4),
    ("attention_prefill_fp8_d64_wide", 4, 4),
    ("attention_backward_dq_d64", 3, 2),
    ("attention_backward_dkdv_d64", 2, 1),
];

/// One head over its own positions.
struct Launch {
    device: Device,
    args: Vec<Arg>,
    outputs: Vec<Arg>,
    entry: &'static str,
}

impl Launch {
    fn new(entry: &'static str, seed: u64) -> Self {
        let (device, mut random) = (Device::new(seed), Rng(90));
        let [mut q, mut keys, mut values, mut dout] =
            [(); 4].map(|()| vec![device.upload(&random.activations(ROWS * DIM))]);
        let outputs = [(); 2].map(|()| device.reserve::<bf16>(ROWS * DIM));
        let scale = 0.2f32.to_bits() as usize;
        let mut numbers = vec![ROWS, 1, 1, ROWS, 0, ROWS];
        let mut args = vec![];
        let outputs = if entry.contains("prefill") {
            if entry.contains("fp8") {
                let codes = |random: &mut Rng| -> Vec<u8> {
                    (0..ROWS * DIM).map(|_| (random.bits() % 127) as u8).collect()
                };
                keys = vec![device.upload(&codes(&mut random))];
                values = vec![device.upload(&codes(&mut random))];
                values.extend([0.01f32, 0.02].map(|scale| device.upload(&[scale; ROWS])));
            }
            numbers.extend([1, 0, scale, 0]);
            args.append(&mut q);
            args.append(&mut keys);
            args.append(&mut values);
            args.extend([Arg::Pointer(0), outputs[0], Arg::Pointer(0)]);
            outputs[..1].to_vec()
        } else {
            numbers.extend([0, scale, scale]);
            args.append(&mut q);
            args.append(&mut keys);
            args.append(&mut values);
            args.append(&mut dout);
            args.push(device.upload(&[[4.0f32, 0.1]; ROWS]));
            let used = if entry.contains("dq") { 1 } else { 2 };
            args.extend(&outputs[..used]);
            outputs[..used].to_vec()
        };
        args.extend(numbers.into_iter().map(Arg::U32));
        Self { device, args, outputs, entry }
    }

    fn run(&self, edit: impl FnOnce(&str) -> String) -> Result<LaunchStats, FaultKind> {
        let blocks = if self.entry.ends_with("_wide") { 3 } else { 5 };
        self.device.try_run_edited(self.entry, [blocks, 1], &self.args, edit).map_err(|fault| fault.kind)
    }
}

/// The lines of the entry's text that have `what`.
fn lines_with(entry: &'static str, what: &str) -> Vec<usize> {
    let mut found = vec![];
    let launch = Launch::new(entry, 0);
    let stats = launch.run(|text| {
        found = text.lines().enumerate().filter(|(_, l)| l.contains(what)).map(|(i, _)| i).collect();
        text.into()
    });
    // The unedited text runs: of each tile that meets the diagonal or lies before it, 64 products for scores or outputs in
    // each of four warps.
    let products = if entry.contains("prefill") {
        2
    } else if entry.contains("dq") {
        3
    } else {
        4
    };
    // Wide blocks have eight sixteens of lines, the last one four.
    let sixteens = if entry.ends_with("_wide") { (2 + 4) * 8 + 5 * 4 } else { (1 + 2 + 3 + 4 + 5) * 4 };
    assert_eq!(stats.unwrap().mma, sixteens * 32 * products, "{entry}");
    for output in &launch.outputs {
        let output = launch.device.download_written::<bf16>(*output, ROWS * DIM);
        assert!(output.iter().all(|x| x.is_finite()), "{entry}");
    }
    found
}

/// The text with line `n` changed.
fn edited(text: &str, n: usize, change: impl Fn(&str) -> String) -> String {
    text.lines().enumerate().map(|(i, l)| if i == n { change(l) } else { l.into() } + "\n").collect()
}

#[test]
fn every_barrier_is_needed() {
    for (entry, barriers, needed) in KERNELS {
        let lines = lines_with(entry, "bar.sync");
        assert_eq!(lines.len(), barriers, "{entry}");
        let outcomes = lines.into_iter().map(|line| {
            let outcome = Launch::new(entry, 5).run(|text| edited(text, line, |_| String::new())).map(drop);
            println!("{entry} without line {line}: {outcome:?}");
            outcome
        });
        let seen = [FaultKind::SharedRace, FaultKind::PendingAsyncCopy, FaultKind::Uninitialised].map(Err);
        assert_eq!(outcomes.filter(|outcome| seen.contains(outcome)).count(), needed, "{entry}");
    }
}

#[test]
fn a_weaker_wait_is_seen() {
    for (entry, ..) in KERNELS {
        let mut seen = 0;
        for line in lines_with(entry, "cp.async.wait_group") {
            // One batch more may be under way.
            let weaker = |l: &str| {
                let digit = l.bytes().position(|b| b.is_ascii_digit()).unwrap();
                let n: u32 = l[digit..=digit].parse().unwrap();
                format!("{}{}{}", &l[..digit], n + 1, &l[digit + 1..])
            };
            let outcome = Launch::new(entry, 5).run(|text| edited(text, line, weaker)).map(drop);
            println!("{entry} with a weaker wait in line {line}: {outcome:?}");
            seen += usize::from(outcome == Err(FaultKind::PendingAsyncCopy));
        }
        // Queries, keys, values; keys, values; tiles of lines.
        let waits = if entry.contains("prefill") {
            3
        } else if entry.contains("dq") {
            2
        } else {
            1
        };
        assert_eq!(seen, waits, "{entry}");
    }
}
