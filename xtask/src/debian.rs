//! A Debian in a folder of its own: a compiler that this machine does not have, and what runs its programs.
//!
//! It is made once (3 GB, minutes) and takes root, for `debootstrap` and `chroot`; nothing is installed outside the folder,
//! and what is mounted in it is seen by the command that runs in it alone.
//!
//! ```text
//! ROOT          the Debian             /source  the workspace
//! ROOT/cargo    cargo's home, fetched  /build   TARGET/debian-build
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::shell;

/// Written into the folder when everything is installed: what was.
const DONE: &str = "halfbyte-packages";
/// Our settings for its apt.
const SETTINGS: &str = "etc/apt/apt.conf.d/90halfbyte";
/// The compiler with the standard libraries for other CPUs and their linkers; what runs their programs; the standard
/// library's source and ThreadSanitizer's runtime.
const PACKAGES: [&str; 13] = [
    "rustc",
    "cargo",
    "gcc",
    "gcc-aarch64-linux-gnu",
    "libc6-dev-arm64-cross",
    "libstd-rust-dev:arm64",
    "qemu-user",
    "libstd-rust-dev-wasm32",
    "wasi-libc",
    "lld",
    "nodejs",
    "rust-src",
    "libtsan2",
];

/// Where the Debian is, or what it is made of.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The folder of the Debian; made if it is not there [default: debian in cargo's target folder]
    #[arg(long, value_name = "FOLDER")]
    root: Option<PathBuf>,
    /// Debian's suite: its rustc has to be as new as Cargo.toml's rust-version
    #[arg(long, value_name = "NAME", default_value = "sid")]
    suite: String,
    /// Where packages come from [default: where this machine's apt takes Debian's from]
    #[arg(long, value_name = "URL")]
    mirror: Option<String>,
}

/// A folder with a compiler.
#[derive(Debug)]
pub(crate) struct Debian {
    root: PathBuf,
    build: PathBuf,
    cargo: PathBuf,
}

impl Debian {
    /// The Debian that `place` names, made if need be.
    ///
    /// # Errors
    /// A program that is missing, not being root, or the step that failed.
    pub(crate) fn find_or_install(place: &Place) -> Result<Self> {
        let target = shell::target()?;
        let root = place.root.clone().unwrap_or_else(|| target.join("debian"));
        if !std::fs::read_to_string(root.join(DONE)).is_ok_and(|names| names == PACKAGES.join("\n")) {
            install(&root, place)?;
        }
        Ok(Self { root, build: target.join("debian-build"), cargo: cargo_home()? })
    }

    /// Fetches what the standard library is built of, so that it can be built offline.
    ///
    /// # Errors
    /// If cargo fails.
    pub(crate) fn fetch_std(&self) -> Result<()> {
        let manifest = self.root.join("usr/lib/rustlib/src/rust/library/Cargo.toml");
        shell::run(
            Command::new("cargo")
                .args(["fetch", "--locked", "--manifest-path"])
                .arg(manifest)
                .env("RUSTC_BOOTSTRAP", "1"),
        )
    }

    /// Runs cargo in there, with these variables and few others.
    ///
    /// # Errors
    /// If it fails.
    pub(crate) fn cargo(&self, args: &str, variables: &[(&str, &str)]) -> Result<()> {
        let root = self.root.display();
        std::fs::create_dir_all(&self.build)?;
        let mounts =
            [(shell::root(), "source"), (self.cargo.clone(), "cargo"), (self.build.clone(), "build")];
        let mut script = String::from("set -e\n");
        for (from, to) in mounts {
            std::fs::create_dir_all(self.root.join(to))?;
            script += &format!("mount --bind '{}' '{root}/{to}'\n", from.display());
        }
        script += &format!("mount -t proc proc '{root}/proc'\n");
        script += &format!("exec chroot '{root}' env -i \"$@\" sh -c 'cd /source && exec cargo {args}'\n");
        let own = [
            ("PATH", "/usr/bin:/bin"),
            ("HOME", "/root"),
            ("CARGO_HOME", "/cargo"),
            ("CARGO_TARGET_DIR", "/build"),
        ];
        let variables = own.iter().chain(variables).map(|(name, value)| format!("{name}={value}"));
        println!("\n# in {root}: cargo {args}");
        shell::run(Command::new("unshare").args(["--mount", "sh", "-c", &script, "sh"]).args(variables))
    }
}

/// Makes the Debian, which takes its name when it has all that is not to be installed by itself, and installs the packages.
fn install(root: &Path, place: &Place) -> Result<()> {
    for program in ["debootstrap", "unshare", "chroot"] {
        let found = Command::new("sh").args(["-c", &format!("command -v {program}")]).output()?;
        ensure!(found.status.success(), "{program} is not installed: expected it of Debian's packages");
    }
    let user = Command::new("id").arg("-u").output().context("id can't be started")?;
    ensure!(user.stdout.trim_ascii() == b"0", "not root: debootstrap and chroot can't do without");
    if !root.join(SETTINGS).is_file() {
        ensure!(!root.exists(), "{} is there and no Debian of ours: name another --root", root.display());
        let mirror = place.mirror.clone().map_or_else(apt_mirror, Ok)?;
        let started = root.with_extension("partial");
        if started.exists() {
            std::fs::remove_dir_all(&started).with_context(|| started.display().to_string())?;
        }
        std::fs::create_dir_all(&started)?;
        let mut debootstrap = Command::new("debootstrap");
        shell::run(debootstrap.arg("--variant=minbase").arg(&place.suite).arg(&started).arg(mirror))?;
        // Signatures are checked; a mirror that is some weeks behind will do.
        std::fs::write(started.join(SETTINGS), "Acquire::Check-Valid-Until \"false\";\n")?;
        std::fs::rename(&started, root).with_context(|| root.display().to_string())?;
    }
    let inside = |command: &[&str]| {
        shell::run(
            Command::new("chroot").arg(root).args(["env", "DEBIAN_FRONTEND=noninteractive"]).args(command),
        )
    };
    inside(&["dpkg", "--add-architecture", "arm64"])?;
    inside(&["apt-get", "update", "-q"])?;
    inside(&[&["apt-get", "install", "-qq", "--no-install-recommends"], &PACKAGES[..]].concat())?;
    inside(&["apt-get", "clean"])?;
    Ok(std::fs::write(root.join(DONE), PACKAGES.join("\n"))?)
}

/// The first place that this machine's apt takes Debian's main packages from.
fn apt_mirror() -> Result<String> {
    let advice = "name one: --mirror URL";
    let output = Command::new("apt-get")
        .args(["indextargets", "--format", "$(LABEL) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"])
        .output()
        .with_context(|| format!("apt-get can't be started; {advice}"))?;
    mirror_of(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("this machine's apt knows no place of Debian's packages; {advice}"))
}

/// Of lines `LABEL COMPONENT URL`, the first URL of Debian's main packages.
fn mirror_of(lines: &str) -> Option<String> {
    lines.lines().find_map(|line| line.strip_prefix("Debian main ")).map(str::to_owned)
}

/// Where cargo keeps what it fetches.
fn cargo_home() -> Result<PathBuf> {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")));
    match home {
        Some(home) if home.is_dir() => Ok(home),
        _ => bail!("cargo's home is unknown: expected CARGO_HOME or HOME to lead there"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_that_of_debians_packages() {
        let lines = "Other main http://other/\nDebian-Security main http://security/\nDebian contrib http://c/\n\
                     Debian main http://debian/\nDebian main http://second/\n";
        assert_eq!(mirror_of(lines).as_deref(), Some("http://debian/"));
        assert_eq!(mirror_of("Debian-Security main http://security/\n"), None);
    }
}
