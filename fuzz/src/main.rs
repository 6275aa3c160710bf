//! All targets in one program, which is linked once: `FUZZ_TARGET` names the one that runs. With `FUZZ_SEEDS` it writes the
//! inputs to begin with into that folder instead, in a folder for each target.
#![no_main]

use std::path::Path;
use std::sync::OnceLock;
use std::{env, fs, io, process};

use halfbyte_fuzz::TARGETS;

static CHECK: OnceLock<fn(&[u8])> = OnceLock::new();

libfuzzer_sys::fuzz_target!(init: init(), |data: &[u8]| (CHECK.wait())(data));

fn init() {
    if let Some(folder) = env::var_os("FUZZ_SEEDS") {
        let written = write_seeds(Path::new(&folder));
        written.unwrap_or_else(|error| end(&format!("{}: {error}", folder.display())));
        process::exit(0);
    }
    let name = env::var("FUZZ_TARGET").unwrap_or_default();
    let Some(target) = TARGETS.iter().find(|target| target.name == name) else {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        end(&format!("FUZZ_TARGET is {name:?}: expected one of {}", names.join(", ")));
    };
    CHECK.get_or_init(|| target.check);
}

fn write_seeds(folder: &Path) -> io::Result<()> {
    for target in TARGETS {
        let folder = folder.join(target.name);
        fs::create_dir_all(&folder)?;
        for (i, seed) in (target.seeds)().iter().enumerate() {
            fs::write(folder.join(format!("seed-{i:02}")), seed)?;
        }
    }
    Ok(())
}

fn end(message: &str) -> ! {
    eprintln!("{message}");
    process::exit(1)
}
