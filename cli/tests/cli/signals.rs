//! What signals do to work that is under way.

use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{chat_model, halfbyte, signal, temp_dir};

/// The signals that end a program, and the exit codes that they give.
const SIGNALS: [(&str, i32); 3] = [("INT", 130), ("TERM", 143), ("HUP", 129)];

fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The exit code of a program, and all that it wrote to stderr from now on.
fn end(mut child: Child) -> (Option<i32>, String) {
    drop(child.stdin.take());
    let mut stdout = child.stdout.take().unwrap();
    let rest = std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()).unwrap());
    let mut stderr = String::new();
    child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
    let code = child.wait().unwrap().code();
    rest.join().unwrap();
    (code, stderr)
}

fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

#[test]
fn run_stops_and_shows_its_summary() {
    let dir = temp_dir();
    let model = chat_model(&dir);
    // The greedy reply of this model never ends.
    let args = [
        "run",
        "--model",
        model.to_str().unwrap(),
        "--temperature",
        "0",
        "-p",
        "x",
        "-n",
        "60000",
        "--ctx",
        "65536",
    ];
    for (name, code) in SIGNALS {
        let mut child = start(&mut halfbyte(&args));
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        signal(&child, name);
        let (got, stderr) = end(child);
        assert_eq!(got, Some(code), "{name}: {stderr}");
        assert!(stderr.contains("decode ") && stderr.contains("stopped: by a signal"), "{name}: {stderr}");
    }
}

#[test]
fn chat_ends_by_what_is_not_ctrl_c() {
    use std::io::Write;
    let dir = temp_dir();
    let model = chat_model(&dir);
    let args = ["chat", "--model", model.to_str().unwrap(), "--temperature", "0", "--ctx", "65536"];
    for (name, code) in &SIGNALS[1..] {
        let mut child = start(&mut halfbyte(&args));
        child.stdin.as_mut().unwrap().write_all(b"Hi\nmore\nmore\n").unwrap();
        child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        signal(&child, name);
        let (got, stderr) = end(child);
        assert_eq!(got, Some(*code), "{name}: {stderr}");
        assert_eq!(stderr.matches("[stopped]").count(), 1, "{name}: {stderr}");
    }
}

/// A program that a shell has told to ignore hangups goes on.
#[test]
fn nohup_is_honoured() {
    let dir = temp_dir();
    let model = chat_model(&dir);
    let script = "trap '' HUP; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_halfbyte"), "run", "--model", model.to_str().unwrap()]);
    command.args(["--temperature", "0", "-p", "x", "-n", "2000"]);
    let mut child = start(&mut command);
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    signal(&child, "HUP");
    let (code, stderr) = end(child);
    assert_eq!(code, Some(0), "{stderr}");
    assert!(!stderr.contains("stopped: by a signal"), "{stderr}");
}

/// The optimal method takes long enough to be stopped.
#[test]
fn quantize_leaves_nothing_behind() {
    const TINY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/model/halfbyte-tiny.gguf");
    for (name, _) in SIGNALS {
        let dir = temp_dir();
        let out = dir.path().join("out.gguf");
        let args = [
            "quantize",
            TINY,
            out.to_str().unwrap(),
            "--type",
            "q4_0",
            "--method",
            "optimal",
            "--threads",
            "1",
        ];
        let child = start(&mut halfbyte(&args));
        let deadline = Instant::now() + Duration::from_secs(60);
        while names(dir.path()).is_empty() {
            assert!(Instant::now() < deadline, "no temporary file appears");
            std::thread::sleep(Duration::from_millis(1));
        }
        signal(&child, name);
        let (code, stderr) = end(child);
        assert_eq!(code, Some(1), "{name}: {stderr}");
        assert!(stderr.contains("out.gguf is as it was"), "{name}: {stderr}");
        assert!(names(dir.path()).is_empty(), "{name}: {:?}", names(dir.path()));
    }
}
