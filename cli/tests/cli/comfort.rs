//! What a person at a terminal meets before anything runs: help, completions, manual pages, words of advice.

use std::net::TcpListener;
use std::process::{Command, Stdio};

use crate::support::{Done, halfbyte, run, temp_dir};

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

/// All that the program writes to a terminal of its own, made by util-linux's `script`; `None` where that is missing, or the
/// system has no terminals to give.
fn on_terminal(args: &[&str], no_color: bool) -> Option<String> {
    let quoted: Vec<String> = args.iter().map(|arg| format!("'{arg}'")).collect();
    let line = format!("exec '{}' {}", env!("CARGO_BIN_EXE_halfbyte"), quoted.join(" "));
    let script = |line: &str| {
        let mut command = Command::new("script");
        command.args(["-qec", line, "/dev/null"]).env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.envs(no_color.then_some(("NO_COLOR", "1"))).stdin(Stdio::null()).output()
    };
    match script("true") {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&script(&line).unwrap().stdout).into_owned())
        }
        cause => {
            eprintln!("SKIPPED, NOTHING WAS TESTED: `script` gives no terminal: {cause:?}");
            None
        }
    }
}

#[test]
fn no_color_is_honoured() {
    let (Some(plain), Some(colored)) = (on_terminal(&["--help"], true), on_terminal(&["--help"], false))
    else {
        return;
    };
    assert!(plain.contains("Commands:") && !plain.contains('\x1b'), "{plain}");
    assert!(colored.contains("\x1b["), "{colored}");
}

/// A prompt that takes over a second: how much of it is read, on a terminal and nowhere else, and gone when the reply comes.
#[test]
fn a_long_prompt_shows_how_far_it_is() {
    let prompt = "x".repeat(500);
    let args = ["run", "--isa", "scalar", "--threads", "1", "-n", "1", "--prompt", &prompt];
    let Some(seen) = on_terminal(&args, true) else { return };
    assert!(seen.contains(" of 500 tokens of the prompt read, "), "{seen:?}");
    assert!(!seen.contains("\x1b[3"), "{seen:?}");
    // The line is cleared before the prompt is shown.
    let shown = seen.find("xxxx").unwrap();
    assert!(
        seen.rfind("tokens of the prompt read").unwrap() < shown && seen[..shown].ends_with("\r\x1b[2K"),
        "{seen:?}"
    );
    let done = run(&args);
    assert!(!done.stderr.contains("tokens of the prompt read") && !done.stderr.contains('\x1b'), "{done:?}");
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
    assert!(log(Some("info")).contains("weights packed in "));
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
fn a_folder_that_manual_pages_cannot_go_to_is_named() {
    let dir = temp_dir();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = run(&["man", file.join("man").to_str().unwrap()]).error();
    assert!(error.starts_with(&format!("cannot make {}/man: ", file.display())), "{error}");
    // A directory where a page is to go.
    std::fs::create_dir(dir.path().join("halfbyte.1")).unwrap();
    let error = run(&["man", dir.path().to_str().unwrap()]).error();
    assert!(
        error.starts_with(&format!("cannot write manual pages to {}: ", dir.path().display())),
        "{error}"
    );
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
