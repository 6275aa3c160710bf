//! `cargo xtask ptx`: from `cuda-kernels/kernels/*.cu` to the PTX that the crate ships.
//!
//! With the pinned compiler the text depends on nothing but the sources: the paths in its line tables are made relative
//! to the crate. `cuda-kernels/SHA256SUMS` records sources and texts together, so that an ordinary test without a
//! compiler sees when one was changed without the other (and `sha256sum -c` does).

use crate::cuda_compiler::{Compiler, output_of};
use crate::shell;
use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What every kernel is compiled with.
const FLAGS: [&str; 5] = ["-O3", "-std=c++17", "-arch=compute_80", "-lineinfo", "-ptx"];

/// Options of `cargo xtask ptx`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Writes nothing, and fails when a committed text differs from what the sources give.
    #[arg(long)]
    pub(crate) check: bool,
}

/// The folder of the crate with the kernels.
pub(crate) fn kernels_crate() -> PathBuf {
    shell::root().join("cuda-kernels")
}

/// Compiles every kernel and writes, or with `--check` compares, the texts and the sums.
///
/// # Errors
/// The compiler's, and with `--check` the files that differ.
pub(crate) fn run(args: &Args) -> Result<()> {
    let made = build(&Compiler::find_or_install()?)?;
    let home = kernels_crate();
    let stale = stale(&home, &made)?;
    if args.check {
        if !stale.is_empty() {
            bail!("differ from what the sources give, rebuild with `cargo xtask ptx`: {}", stale.join(", "));
        }
        println!("{} files are what the sources give", made.len());
        return Ok(());
    }
    for path in &stale {
        match made.get(path) {
            Some(text) => write(&home.join(path), text)?,
            None => std::fs::remove_file(home.join(path))?,
        }
        println!("{path}: {}", if made.contains_key(path) { "written" } else { "removed, it has no source" });
    }
    println!(
        "{} of {} files were up to date",
        made.len() - made.keys().filter(|p| stale.contains(p)).count(),
        made.len()
    );
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::create_dir_all(path.parent().context("a file in no folder")?)?;
    std::fs::write(path, text).with_context(|| format!("{}: can't be written", path.display()))
}

/// Everything derived from the sources, by path relative to the crate: the texts, and the sums over sources and texts.
fn build(compiler: &Compiler) -> Result<BTreeMap<String, String>> {
    let home = kernels_crate();
    let (mut made, mut sums) = (BTreeMap::new(), BTreeMap::new());
    for source in files(&home, "kernels", &["cu", "cuh"])? {
        let text = std::fs::read(home.join(&source))?;
        sums.insert(source.clone(), sha256(&text));
        if let Some(name) = source.strip_prefix("kernels/").and_then(|s| s.strip_suffix(".cu")) {
            let ptx = compile(compiler, &home, &source).with_context(|| source.clone())?;
            let path = format!("ptx/sm_80/{name}.ptx");
            sums.insert(path.clone(), sha256(ptx.as_bytes()));
            made.insert(path, ptx);
        }
    }
    let sums = sums.iter().map(|(path, sum)| format!("{sum}  {path}\n")).collect();
    made.insert("SHA256SUMS".into(), sums);
    Ok(made)
}

fn compile(compiler: &Compiler, home: &Path, source: &str) -> Result<String> {
    let work = tempfile::tempdir()?;
    let out = work.path().join("out.ptx");
    output_of(compiler.nvcc().args(FLAGS).arg(source).arg("-o").arg(&out).current_dir(home))?;
    let text = std::fs::read_to_string(&out)?;
    portable(&text, &home.to_string_lossy())
}

/// The text with the paths of its line tables relative to `home`, and without blanks at the ends of lines.
fn portable(ptx: &str, home: &str) -> Result<String> {
    let mut text = String::with_capacity(ptx.len());
    for line in ptx.lines() {
        let mut line = line.trim_end().to_owned();
        if line.trim_start().starts_with(".file") {
            line = line.replace(&format!("\"{home}/"), "\"");
            if line.contains("\"/") {
                bail!("its line tables name a file outside the crate: {line}");
            }
        }
        text.push_str(&line);
        text.push('\n');
    }
    Ok(text)
}

/// Paths of files that are not as in `made`, or that nothing makes.
fn stale(home: &Path, made: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let differs = |(path, text): (&String, &String)| {
        let same = std::fs::read_to_string(home.join(path)).is_ok_and(|found| found == *text);
        (!same).then(|| path.clone())
    };
    let mut stale: Vec<String> = made.iter().filter_map(differs).collect();
    stale.extend(files(home, "ptx", &["ptx"])?.into_iter().filter(|p| !made.contains_key(p)));
    Ok(stale)
}

/// Files under `home/folder` with one of the extensions: their paths relative to `home`, with slashes, in order.
fn files(home: &Path, folder: &str, extensions: &[&str]) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let entries =
        std::fs::read_dir(home.join(folder)).with_context(|| format!("{folder}: can't be listed"))?;
    for entry in entries {
        let entry = entry?;
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            found.extend(files(home, &path, extensions)?);
        } else if Path::new(&path).extension().is_some_and(|e| extensions.iter().any(|x| e == *x)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}
