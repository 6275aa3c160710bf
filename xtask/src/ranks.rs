//! `cargo xtask ranks`: a model on two processes that MPI connects gives the bytes of one process.

use crate::{fetch_model, shell};
use anyhow::{Context, Result, bail, ensure};
use std::path::Path;
use std::process::{Command, Output};

/// What the build and the run need, how to see that it is there, and Debian's packages for it.
const NEEDS: [(&str, &str); 2] = [("mpicc", "libopenmpi-dev and libclang-dev"), ("mpirun", "openmpi-bin")];

/// Builds the program with MPI and compares replies; installs nothing.
///
/// # Errors
/// What is missing, and the first reply that differs.
pub(crate) fn run() -> Result<()> {
    for (program, packages) in NEEDS {
        let there = Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
        ensure!(there, "{program} is missing: an MPI is needed (Debian's packages {packages})");
    }
    shell::cargo("build --release --locked --package halfbyte-cli --features mpi")?;
    let program = shell::release("halfbyte")?;
    let model = fetch_model::path();
    let mut models = vec![vec![]];
    if model.is_file() {
        models.push(vec!["--model", model.to_str().context("the model's path is no text")?]);
    } else {
        println!("SKIPPED, SmolLM2 was not split: {} is missing (cargo xtask fetch-model)", model.display());
    }
    let common = ["run", "-n", "48", "--seed", "7", "--threads", "1"];
    for model in &models {
        for further in
            [&[][..], &["--activations", "f32"], &["--speculate", "4"], &["--no-pack", "--kv-cache", "q8"]]
        {
            let args = [&common[..], model, further].concat();
            let one = output(Command::new(&program).args(&args).args(["--ranks", "off"]))?;
            let two = output(mpirun(2, &program).args(&args))?;
            ensure!(one.status.success(), "{args:?}: {}", String::from_utf8_lossy(&one.stderr));
            let said = String::from_utf8_lossy(&two.stderr);
            ensure!(two.status.success() && said.contains("on      2 ranks"), "two ranks, {args:?}: {said}");
            ensure!(!one.stdout.is_empty() && one.stdout == two.stdout, "{args:?}: the replies differ");
            println!("{args:?}: {} bytes, the same", one.stdout.len());
        }
    }
    refused(mpirun(3, &program).args(common), "3 ranks can't share 2 key and value heads")?;
    refused(mpirun(2, &program).args(common).args(["--model", "nowhere.gguf"]), "nowhere.gguf")?;
    refused(mpirun(2, &program).args(common).args(["--temperature=-1"]), "temperature")?;
    // Two programs under one mpirun: the second rank has another context.
    let mut apart = mpirun(1, &program);
    apart.args(common).args([":", "-n", "1"]).arg(&program).args(common).args(["--ctx", "100"]);
    refused(&mut apart, "rank 1: it has ")
}

/// `program` on `ranks` processes, as many as that may be for this machine, and whoever runs it.
fn mpirun(ranks: usize, program: &Path) -> Command {
    let mut command = Command::new("mpirun");
    command.args(["-n", &ranks.to_string()]).arg(program);
    // Open MPI's; others do not mind.
    command
        .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
        .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
        .env("OMPI_MCA_rmaps_base_oversubscribe", "1");
    command
}

fn output(command: &mut Command) -> Result<Output> {
    command.output().with_context(|| format!("{command:?}: can't be started"))
}

/// Checks that a run fails, and that the reason is on stderr, once.
fn refused(command: &mut Command, reason: &str) -> Result<()> {
    let done = output(command)?;
    let said = String::from_utf8_lossy(&done.stderr);
    let lines: Vec<&str> = said.lines().filter(|line| line.starts_with("error: ")).collect();
    match lines.as_slice() {
        [line] if line.contains(reason) && !done.status.success() => {
            println!("refused: {line}");
            Ok(())
        }
        _ => bail!("{command:?}: {}; expected one error with {reason:?}: {said}", done.status),
    }
}
