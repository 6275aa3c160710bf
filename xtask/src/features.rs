//! `cargo xtask features`: every set of features of every published crate compiles, without a warning.

use crate::shell;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::process::Command;

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    features: BTreeMap<String, Vec<String>>,
    /// The registries that it may go to; `None` is all.
    publish: Option<Vec<String>>,
}

/// `mpi` needs a library that few machines have: where it is not, its sets are left out, and that is said.
const NEEDS: (&str, &str) = ("mpi", "mpicc");

/// Runs clippy for each set, the empty one included.
///
/// # Errors
/// The first set that does not compile.
pub(crate) fn run() -> Result<()> {
    let output = Command::new("cargo")
        .args(["metadata", "--format-version", "1", "--no-deps", "--locked"])
        .current_dir(shell::root())
        .output()?;
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let (feature, tool) = NEEDS;
    let has_tool = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    for package in metadata.packages.iter().filter(|p| p.publish.as_ref().is_none_or(|to| !to.is_empty())) {
        let names: Vec<&str> =
            package.features.keys().map(String::as_str).filter(|&n| n != "default").collect();
        for set in sets(&names) {
            if set.contains(&feature) && !has_tool {
                println!("\nSKIPPED, {} with {set:?} was not compiled: {tool} is missing", package.name);
                continue;
            }
            shell::cargo(&format!(
                "clippy --locked --quiet --package {} --no-default-features --features={} -- -D warnings",
                package.name,
                set.join(",")
            ))?;
        }
    }
    Ok(())
}

/// All sets of `names`.
fn sets<'a>(names: &[&'a str]) -> Vec<Vec<&'a str>> {
    names.iter().fold(vec![Vec::new()], |sets, name| {
        let with = sets.iter().map(|set: &Vec<&str>| [set.as_slice(), &[name]].concat());
        sets.iter().cloned().chain(with).collect()
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn sets_are_all_sets() {
        assert_eq!(super::sets(&[]), [Vec::<&str>::new()]);
        let sets = super::sets(&["a", "b"]);
        assert_eq!(sets, [vec![], vec!["a"], vec!["b"], vec!["a", "b"]]);
    }
}
