//! `cargo xtask contract`: what the kernels need of each architecture, as `ptxas` says, in `cuda-kernels/contract.json`.
//!
//! The file is committed, so that a change to a kernel shows in review what it costs: registers, shared memory, stack,
//! and how many blocks and warps a multiprocessor holds. A kernel that spills registers, or fits no multiprocessor, fails.

use crate::cuda_compiler::{Compiler, output_of};
use crate::ptx::kernels_crate;
use crate::ptx_text::{self, Block};
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Options of `cargo xtask contract`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Writes nothing, and fails when the kernels need something else than the file says.
    #[arg(long)]
    pub(crate) check: bool,
}

/// A multiprocessor, from the tables of compute capabilities in NVIDIA's programming guide.
struct Architecture {
    name: &'static str,
    threads: u32,
    blocks: u32,
    /// Shared memory of the multiprocessor, of which each block takes another KiB for the system.
    shared_kib: u32,
}

/// Registers of every multiprocessor here; they go to warps in units of 256, in four equal parts.
const REGISTERS: u32 = 65_536;

const ARCHITECTURES: [Architecture; 6] = [
    Architecture { name: "sm_80", threads: 2048, blocks: 32, shared_kib: 164 },
    Architecture { name: "sm_86", threads: 1536, blocks: 16, shared_kib: 100 },
    Architecture { name: "sm_89", threads: 1536, blocks: 24, shared_kib: 100 },
    Architecture { name: "sm_90a", threads: 2048, blocks: 32, shared_kib: 228 },
    Architecture { name: "sm_120", threads: 1536, blocks: 24, shared_kib: 100 },
    Architecture { name: "sm_121", threads: 1536, blocks: 24, shared_kib: 100 },
];

/// What `ptxas` made of an entry point.
#[derive(Debug, Clone, Copy, Default)]
struct Needs {
    registers: u32,
    shared: u32,
    stack: u32,
    spilled: u32,
}

impl Architecture {
    /// Blocks that a multiprocessor holds at once.
    fn resident(&self, block: Block, needs: Needs) -> u32 {
        let warps = block.threads.div_ceil(32);
        let registers_a_warp = (needs.registers * 32).next_multiple_of(256);
        let warps_of_registers = REGISTERS / 4 / registers_a_warp.max(1) * 4;
        let shared = (block.shared_bytes + needs.shared + 1024).next_multiple_of(128);
        (self.threads / 32 / warps)
            .min(self.blocks)
            .min(warps_of_registers / warps)
            .min(self.shared_kib * 1024 / shared)
    }
}

/// Measures every kernel and writes, or with `--check` compares, the file.
///
/// # Errors
/// The compiler's; kernels that spill or don't fit; with `--check`, the lines that differ.
pub(crate) fn run(args: &Args) -> Result<()> {
    let compiler = Compiler::find_or_install()?;
    let blocks = blocks()?;
    let needs = assemble(&compiler)?;
    let made = contract(&blocks, &needs)?;
    let path = kernels_crate().join("contract.json");
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differences = differences(&found, &made);
    for line in &differences {
        println!("{line}");
    }
    if !args.check {
        std::fs::write(&path, made)?;
        println!("{} lines of {} differed and were written", differences.len(), path.display());
    } else if found != made {
        bail!(
            "contract.json is not what the kernels need: review the lines above and run `cargo xtask contract`"
        );
    }
    refuse_spills(&blocks, &needs)
}

/// The texts that are shipped.
fn texts() -> Result<Vec<PathBuf>> {
    let folder = kernels_crate().join("ptx/sm_80");
    let mut found = Vec::new();
    for entry in
        std::fs::read_dir(&folder).with_context(|| format!("{}: can't be listed", folder.display()))?
    {
        found.push(entry?.path());
    }
    found.sort();
    Ok(found)
}

/// The number that precedes `label`.
fn number_before(text: &str, label: &str) -> Option<u32> {
    text[..text.find(label)?].rsplit(' ').next()?.parse().ok()
}

/// What a launch gives every entry point, by name.
fn blocks() -> Result<BTreeMap<String, Block>> {
    let mut blocks = BTreeMap::new();
    for path in texts()? {
        let text = std::fs::read_to_string(&path)?;
        for name in ptx_text::entries(&text) {
            let block = ptx_text::block(&text, name).with_context(|| format!("{name}: no .maxntid"))?;
            blocks.insert(name.to_owned(), block);
        }
    }
    Ok(blocks)
}

/// What every entry point needs on every architecture, by name and architecture.
fn assemble(compiler: &Compiler) -> Result<BTreeMap<(String, &'static str), Needs>> {
    let texts = texts()?;
    let work = Mutex::new(texts.iter().flat_map(|t| ARCHITECTURES.iter().map(move |a| (t, a.name))));
    let worker = || -> Result<BTreeMap<_, _>> {
        let mut made = BTreeMap::new();
        loop {
            let next = work.lock().map(|mut w| w.next()).ok().flatten();
            let Some((text, architecture)) = next else { return Ok(made) };
            let said = ptxas(compiler, text, architecture)?;
            made.extend(parse(&said)?.into_iter().map(|(name, needs)| ((name, architecture), needs)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        let mut all = BTreeMap::new();
        for worker in workers {
            all.extend(worker.join().ok().context("a worker panicked")??);
        }
        Ok(all)
    })
}

fn ptxas(compiler: &Compiler, text: &Path, architecture: &str) -> Result<String> {
    let out = tempfile::NamedTempFile::new()?;
    let mut command = compiler.ptxas();
    command.arg("--verbose").arg(format!("--gpu-name={architecture}")).arg(text).arg("-o").arg(out.path());
    output_of(&mut command)
}

/// The entry points in what `ptxas --verbose` prints.
fn parse(said: &str) -> Result<BTreeMap<String, Needs>> {
    let mut found = BTreeMap::new();
    for part in said.split("Compiling entry function '").skip(1) {
        let name = part.split('\'').next().unwrap_or_default().to_owned();
        let needs = Needs {
            registers: number_before(part, " registers").with_context(|| format!("{name}: no registers"))?,
            shared: number_before(part, " bytes smem").unwrap_or(0),
            stack: number_before(part, " bytes stack frame").with_context(|| format!("{name}: no stack"))?,
            spilled: number_before(part, " bytes spill stores").unwrap_or(0)
                + number_before(part, " bytes spill loads").unwrap_or(0),
        };
        found.insert(name, needs);
    }
    Ok(found)
}

/// The file: a line for an entry point on an architecture.
fn contract(
    blocks: &BTreeMap<String, Block>,
    needs: &BTreeMap<(String, &'static str), Needs>,
) -> Result<String> {
    let mut text = String::from("{\n");
    for (i, (name, block)) in blocks.iter().enumerate() {
        writeln!(text, "  \"{name}\": {{")?;
        writeln!(
            text,
            "    \"threads\": {}, \"dynamic_shared_bytes\": {},",
            block.threads, block.shared_bytes
        )?;
        for (j, a) in ARCHITECTURES.iter().enumerate() {
            let n = needs
                .get(&(name.clone(), a.name))
                .with_context(|| format!("{name}: nothing for {}", a.name))?;
            let resident = a.resident(*block, *n);
            write!(
                text,
                "    \"{}\": {{\"registers\": {}, \"static_shared_bytes\": {}, \"stack_bytes\": {}, \"spilled_bytes\": {}, \"blocks\": {}, \"warps\": {}}}",
                a.name,
                n.registers,
                n.shared,
                n.stack,
                n.spilled,
                resident,
                resident * block.threads / 32
            )?;
            text.push_str(if j + 1 < ARCHITECTURES.len() { ",\n" } else { "\n" });
        }
        text.push_str(if i + 1 < blocks.len() { "  },\n" } else { "  }\n" });
    }
    text.push_str("}\n");
    Ok(text)
}

/// The lines of one file that the other lacks, each with its entry point.
fn differences(found: &str, made: &str) -> Vec<String> {
    let lines = |text: &str| {
        let mut entry = String::new();
        let mut all = Vec::new();
        for line in text.lines().filter(|l| l.contains('"')) {
            if line.starts_with("  \"") {
                entry = line.split('"').nth(1).unwrap_or_default().to_owned();
            } else {
                all.push(format!("{entry} {}", line.trim().trim_end_matches(',')));
            }
        }
        all
    };
    let (found, made) = (lines(found), lines(made));
    let gone = found.iter().filter(|l| !made.contains(l)).map(|l| format!("- {l}"));
    let new = made.iter().filter(|l| !found.contains(l)).map(|l| format!("+ {l}"));
    let mut all: Vec<String> = gone.chain(new).collect();
    all.sort_by(|a, b| a[2..].cmp(&b[2..]).then(b.cmp(a)));
    all
}

/// Fails for kernels that keep registers in memory, or of which a multiprocessor can't hold a block.
fn refuse_spills(
    blocks: &BTreeMap<String, Block>,
    needs: &BTreeMap<(String, &'static str), Needs>,
) -> Result<()> {
    let mut wrong = Vec::new();
    for ((name, architecture), n) in needs {
        if n.spilled > 0 || n.stack > 0 {
            wrong.push(format!("{name} on {architecture} spills {} bytes, stack {}", n.spilled, n.stack));
        }
        let a = ARCHITECTURES.iter().find(|a| a.name == *architecture).context("an unknown architecture")?;
        if a.resident(blocks[name], *n) == 0 {
            wrong.push(format!("{name} does not fit a multiprocessor of {architecture}"));
        }
    }
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use super::{ARCHITECTURES, Block, Needs, blocks, differences, kernels_crate, parse};

    #[test]
    fn reads_what_ptxas_prints() {
        let said = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'f' for 'sm_86'\n\
            ptxas info    : Function properties for f\n    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n\
            ptxas info    : Used 34 registers, used 1 barriers, 8 bytes cumulative stack size, 48 bytes smem, 404 bytes cmem[0]\n";
        let needs = parse(said).unwrap()["f"];
        assert_eq!((needs.registers, needs.shared, needs.stack, needs.spilled), (34, 48, 8, 28));
    }

    /// The part of the file that needs no compiler.
    #[test]
    fn the_files_blocks_are_those_of_the_texts() {
        let file = std::fs::read_to_string(kernels_crate().join("contract.json")).unwrap();
        let file: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&file).unwrap();
        let blocks = blocks().unwrap();
        assert_eq!(file.keys().collect::<Vec<_>>(), blocks.keys().collect::<Vec<_>>());
        for (name, block) in blocks {
            let said = |key: &str| file[&name][key].as_u64().unwrap();
            let got = (u64::from(block.threads), u64::from(block.shared_bytes));
            assert_eq!(got, (said("threads"), said("dynamic_shared_bytes")), "{name}");
        }
    }

    /// Against figures of NVIDIA's occupancy calculator.
    #[test]
    fn occupancy_is_limited_by_the_scarcest() {
        let on = |name: &str, threads, shared, registers| {
            let needs = Needs { registers, ..Needs::default() };
            ARCHITECTURES
                .iter()
                .find(|a| a.name == name)
                .unwrap()
                .resident(Block { threads, shared_bytes: shared }, needs)
        };
        assert_eq!(on("sm_86", 256, 0, 32), 6); // threads: 1536 / 256
        assert_eq!(on("sm_86", 32, 0, 32), 16); // blocks
        assert_eq!(on("sm_80", 256, 0, 128), 2); // registers: 16 warps of 4,096
        assert_eq!(on("sm_80", 256, 0, 129), 1); // 136 a thread once rounded
        assert_eq!(on("sm_86", 128, 48 << 10, 32), 2); // shared memory: 49 KiB each of 100
        assert_eq!(on("sm_86", 128, 99 << 10, 32), 1);
        assert_eq!(on("sm_86", 128, 100 << 10, 32), 0);
    }

    #[test]
    fn differences_name_the_kernel() {
        let found =
            "{\n  \"f\": {\n    \"sm_80\": {\"registers\": 1},\n    \"sm_86\": {\"registers\": 3}\n  }\n}\n";
        let made = found.replace(": 1", ": 2");
        assert_eq!(differences(found, found), Vec::<String>::new());
        assert_eq!(
            differences(found, &made),
            ["- f \"sm_80\": {\"registers\": 1}", "+ f \"sm_80\": {\"registers\": 2}"]
        );
    }
}
