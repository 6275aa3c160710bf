//! What a person at a terminal meets before anything runs: help, completions, manual pages, words of advice.

#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod cli_support;

use std::net::TcpListener;
use std::process::Command;

use cli_support::{Done, halfbyte, run, temp_dir};

/// Every command that `--help` lists.
fn commands() -> Vec<String> {
    let help = run(&["--help"]).ok();
    let list = help.split_once("Commands:\n").unwrap().1.split_once("\n\n").unwrap().0;
    let names = list.lines().map(|line| line.split_whitespace().next().unwrap().to_owned());
    names.filter(|name| name != "help").collect()
}

#[test]
fn every_command_shows_how_it_is_used() {
    let commands = commands();
    assert!(commands.len() >= 16, "{commands:?}");
    for command in commands {
        let help = run(&[&command, "--help"]).ok();
        assert!(help.contains("\nExamples:\n"), "{help}");
        assert!(help.split_once("Examples:\n").unwrap().1.contains(&format!("halfbyte {command}")), "{help}");
    }
}

/// Nothing that a terminal alone understands goes elsewhere.
#[test]
fn pipes_get_plain_text() {
    for args in
        [&["--help"][..], &["run", "--help"], &["walk"], &["run", "-n", "2"], &["logits", "--prompt", "The"]]
    {
        let done: Done = halfbyte(args).env("RUST_LOG", "trace").output().unwrap().into();
        assert!(!(done.stdout.contains('\x1b') || done.stderr.contains('\x1b')), "{args:?}: {done:?}");
    }
}

#[test]
fn logs_are_for_those_who_ask() {
    let log = |level: Option<&str>| {
        let mut command = halfbyte(&["run", "-n", "1"]);
        command.env_remove("RUST_LOG").envs(level.map(|level| ("RUST_LOG", level)));
        Done::from(command.output().unwrap()).stderr
    };
    assert!(log(Some("info")).contains("halfbyte-tiny (embedded): weights packed in "));
    assert!(!log(Some("error")).contains("packed in"));
    assert!(!log(None).contains("packed in"));
}

/// Bash itself reads the script and completes commands, options and values by it.
#[test]
fn bash_completes() {
    if Command::new("bash").arg("--version").output().is_err() {
        eprintln!("SKIPPED, NOTHING WAS TESTED: no bash");
        return;
    }
    let complete = |line: &str| {
        let script = format!(
            "source /dev/stdin; words=({line}); COMP_WORDS=(\"${{words[@]}}\"); COMP_CWORD=$((${{#words[@]}} - 1)); \
             complete -p halfbyte; _halfbyte halfbyte \"${{words[-1]}}\" \"${{words[-2]}}\"; echo \"${{COMPREPLY[@]}}\""
        );
        let dir = temp_dir();
        let path = dir.path().join("completions");
        std::fs::write(&path, run(&["completions", "bash"]).ok()).unwrap();
        let output = Command::new("bash")
            .args(["-c", &script])
            .stdin(std::fs::File::open(path).unwrap())
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with("complete ") && text.contains("-F _halfbyte halfbyte\n"), "{text}");
        text.lines().last().unwrap().to_owned()
    };
    assert_eq!(complete("halfbyte qu"), "quantize");
    assert_eq!(complete("halfbyte quantize --ty"), "--type");
    assert_eq!(complete("halfbyte quantize --type q8"), "q8_0");
}

#[test]
fn there_is_a_manual_page_for_every_command() {
    let dir = temp_dir();
    run(&["man", dir.path().to_str().unwrap()]).ok();
    let page = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(page("halfbyte.1").contains(".TH halfbyte 1"));
    for command in commands() {
        let page = page(&format!("halfbyte-{command}.1"));
        assert!(page.contains(&format!(".TH halfbyte-{command} 1")) && page.contains("Examples:"), "{page}");
    }
}

#[test]
fn a_path_that_leads_nowhere_comes_with_what_is_there() {
    let dir = temp_dir();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let error = |model: &str| run(&["run", "--model", model]).error();
    assert!(error(&path("none.gguf")).ends_with("(os error 2)"));
    for name in ["b.gguf", "a.gguf", "c.txt"] {
        std::fs::write(path(name), "").unwrap();
    }
    let said = error(&path("none.gguf"));
    assert!(
        said.ends_with(&format!("(os error 2); {} has a.gguf, b.gguf", path("").trim_end_matches('/'))),
        "{said}"
    );
    let said = error(&path("no/model.gguf"));
    assert!(said.ends_with(&format!("; there is no directory {} either", path("no"))), "{said}");
    for (name, advice) in [
        ("model.safetensors", "; name its directory, which has config.json too"),
        ("model.bin", "; of other formats safetensors are read, in a directory with config.json"),
    ] {
        std::fs::write(path(name), "\u{8}\0\0\0\0\0\0\0{}      ").unwrap();
        let said = error(&path(name));
        assert!(
            said.starts_with(&format!("{}: not a GGUF file", path(name))) && said.ends_with(advice),
            "{said}"
        );
    }
}

#[test]
fn a_port_in_use_is_told_with_the_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let error = run(&["serve", "--port", &port]).error();
    assert!(error.starts_with(&format!("cannot listen on 127.0.0.1:{port}: ")), "{error}");
    assert!(error.ends_with("; --port names another, 0 is any that is free"), "{error}");
    let error = run(&["serve", "--port", "0", "--host", "192.0.2.1"]).error();
    assert!(error.ends_with("; --host has to be an address of this machine"), "{error}");
}
