//! The PTX belongs to the sources: `SHA256SUMS`, which `cargo xtask ptx` writes, fits both. No compiler is needed.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use halfbyte_cuda_kernels::ptx;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

fn home() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Relative paths under a folder of the crate with one of the extensions.
fn files(folder: &str, extensions: &[&str]) -> Vec<String> {
    let entries = std::fs::read_dir(home().join(folder)).unwrap().map(|e| e.unwrap());
    let named = entries.map(|e| (format!("{folder}/{}", e.file_name().to_string_lossy()), e.path()));
    named
        .flat_map(|(name, path)| match path.extension() {
            _ if path.is_dir() => files(&name, extensions),
            Some(e) if extensions.iter().any(|x| e == *x) => vec![name],
            _ => vec![],
        })
        .collect()
}

#[test]
fn sources_and_ptx_are_the_recorded_ones() {
    let recorded = std::fs::read_to_string(home().join("SHA256SUMS")).unwrap();
    let recorded: BTreeMap<String, String> =
        recorded.lines().map(|l| l.split_once("  ").unwrap()).map(|(s, p)| (p.into(), s.into())).collect();
    let found: BTreeMap<String, String> = files("kernels", &["cu", "cuh"])
        .into_iter()
        .chain(files("ptx", &["ptx"]))
        .map(|path| {
            let bytes = std::fs::read(home().join(&path)).unwrap();
            let sum = Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect();
            (path, sum)
        })
        .collect();
    let paths: BTreeSet<_> = recorded.keys().chain(found.keys()).collect();
    let wrong: Vec<_> = paths.into_iter().filter(|p| recorded.get(*p) != found.get(*p)).collect();
    assert!(wrong.is_empty(), "changed without `cargo xtask ptx`: {wrong:?}");
}

#[test]
fn every_source_is_shipped_and_names_its_entries() {
    let mut sources = files("kernels", &["cu"]);
    sources.sort();
    let shipped: Vec<_> = ptx::ALL.iter().map(|p| format!("kernels/{}.cu", p.name)).collect();
    assert_eq!(shipped, sources);
    let mut seen = BTreeSet::new();
    for text in ptx::ALL {
        assert!(text.entries().count() > 0, "{}", text.name);
        for entry in text.entries() {
            assert!(entry.starts_with(text.name), "{entry} in {}", text.name);
            assert!(seen.insert(entry), "{entry} twice");
            assert_eq!(ptx::of_entry(entry), Some(*text));
        }
    }
}

#[test]
fn no_text_names_a_folder_of_the_machine_that_compiled_it() {
    for text in ptx::ALL {
        let named: Vec<_> = text.sm_80.lines().filter(|l| l.trim_start().starts_with(".file")).collect();
        assert!(!named.is_empty(), "{}: no line tables", text.name);
        assert!(named.iter().all(|l| l.contains("\"kernels/")), "{}: {named:?}", text.name);
    }
}
