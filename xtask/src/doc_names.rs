//! Tests that the files, crates and tasks that the documents name exist.
//!
//! A file is named in backquotes, by its path from the repository's root or by the end of that path. Names with `NAME`,
//! `*` or `{` in them are patterns and are not checked.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use crate::shell;

/// Folders that a checkout does not have, or that belong to other projects.
const ELSEWHERE: [&str; 4] = ["target/", "models/", "vendor/", "lib64/"];

/// Endings that are checked in names without a folder, too. Other such names may be of files that users have.
const SOURCES: [&str; 3] = [".rs", ".cu", ".cuh"];

/// Endings that are checked in names with a folder.
const FILES: [&str; 12] =
    [".rs", ".cu", ".cuh", ".md", ".json", ".toml", ".py", ".gguf", ".svg", ".txt", ".html", ".js"];

/// Paths of all files and folders below `folder`, from the root, with `/` between and behind folders.
fn collect(root: &Path, folder: &Path, paths: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        let relative = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if !entry.file_type().unwrap().is_dir() {
            paths.insert(relative);
        } else if name != "target" && relative != "models" && !name.to_str().unwrap().starts_with('.') {
            paths.insert(relative + "/");
            collect(root, &path, paths);
        }
    }
}

fn all_paths() -> BTreeSet<String> {
    let (root, mut paths) = (shell::root(), BTreeSet::new());
    collect(root.as_ref(), root.as_ref(), &mut paths);
    paths
}

/// The documents: what is in the root and in `docs/`, and the READMEs. The changelog tells of files that are gone.
fn documents(paths: &BTreeSet<String>) -> Vec<&str> {
    let is_document = |path: &&str| {
        path.ends_with("README.md")
            || (path.ends_with(".md") && (!path.contains('/') || path.starts_with("docs/")))
    };
    let documents = paths.iter().map(String::as_str).filter(is_document);
    documents.filter(|&path| path != "CHANGELOG.md").collect()
}

/// The names of files and folders in backquotes, outside blocks of code.
fn named(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let quoted = prose.flat_map(|part| part.split('`').skip(1).step_by(2));
    quoted.filter(|name| is_file(name)).collect()
}

fn is_file(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let ends = |endings: &[&str]| endings.iter().any(|end| name.ends_with(end) && name.len() > end.len());
    name.chars().all(plain)
        && !name.contains("NAME")
        && !name.starts_with(['/', '.'])
        && !ELSEWHERE.iter().any(|folder| name.starts_with(folder))
        && (ends(&SOURCES) || (name.contains('/') && (ends(&FILES) || ends(&["/"]))))
}

/// Whether a path is `name` or ends with it, a whole part at a time.
fn exists(paths: &BTreeSet<String>, name: &str) -> bool {
    paths.contains(name) || paths.iter().any(|path| path.strip_suffix(name).is_some_and(|p| p.ends_with('/')))
}

/// The targets of links to files, as `](target)` has them, without the place in the file.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let targets = targets.map(|target| target.split('#').next().unwrap_or_default());
    targets.filter(|target| !target.is_empty() && !target.contains("://") && (target.contains(['/', '.'])))
}

#[test]
fn files_that_documents_name_exist() {
    let paths = all_paths();
    let (mut missing, mut checked) = (Vec::new(), 0);
    for document in documents(&paths) {
        let text = fs::read_to_string(shell::root().join(document)).unwrap();
        for name in named(&text) {
            checked += 1;
            if !exists(&paths, name) {
                missing.push(format!("{document} names {name}"));
            }
        }
        let folder: PathBuf = shell::root().join(document).parent().unwrap().to_owned();
        for link in links(&text) {
            checked += 1;
            if !folder.join(link).exists() {
                missing.push(format!("{document} links to {link}"));
            }
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(checked > 100, "{checked} names were found");
}

#[test]
fn tasks_and_crates_that_documents_name_exist() {
    let paths = all_paths();
    let command = <crate::Task as clap::CommandFactory>::command();
    let tasks: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
    let word = |text: &str| -> String {
        text.chars().take_while(|c| c.is_ascii_lowercase() || *c == '-' || c.is_ascii_digit()).collect()
    };
    let mut missing = Vec::new();
    for document in documents(&paths) {
        let text = fs::read_to_string(shell::root().join(document)).unwrap();
        let mut check = |before: &str, is_known: &dyn Fn(&str) -> bool| {
            for rest in text.split(before).skip(1) {
                let name = word(rest);
                if !name.is_empty() && !is_known(&name) {
                    missing.push(format!("{document}: {before}{name}"));
                }
            }
        };
        check("cargo xtask ", &|name| tasks.contains(&name));
        for option in ["-p halfbyte-", "--package halfbyte-"] {
            check(option, &|name| paths.contains(&format!("{name}/Cargo.toml")));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

#[test]
fn names_are_told_from_other_text() {
    let text = "In `a/b.rs` and `x.rs`, not `a b.rs`, `/v1/models/`, `src/NAME.rs`.\n```text\n`c/d.rs`\n```\n`e/`, `f.json`";
    assert_eq!(named(text), ["a/b.rs", "x.rs", "e/"]);
    let paths = BTreeSet::from(["q/a/b.rs".to_owned(), "q/a/".to_owned()]);
    for (name, there) in [("a/b.rs", true), ("b.rs", true), (".rs", false), ("a/", true), ("c.rs", false)] {
        assert_eq!(exists(&paths, name), there, "{name}");
    }
    assert_eq!(links("[a](b/c.md#d) [e](https://x.y/) [f](#g)").collect::<Vec<_>>(), ["b/c.md"]);
}
