//! `--ranks`: processes that share a model, each with a part of it (`docs/scaling.md`).

use std::sync::Arc;

use anyhow::{Result, bail};
#[cfg(feature = "mpi")]
use halfbyte::model::MpiWorld;
use halfbyte::model::{Leader, Ranks, agree, follow};

use super::args::{DeviceArg, GlobalArgs, RanksArg};
use super::loading::{self, LoadedModel};
use super::output::note;

/// The environment variables by which launchers tell each process how many there are: Open MPI's, and the one that MPICH
/// and the MPIs derived from it share.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// Calls `lead` with the ranks that `choice` selects: without any, or on rank 0 while the other processes follow it.
pub(crate) fn together(
    global: &GlobalArgs,
    choice: RanksArg,
    lead: impl FnOnce(Option<Arc<dyn Ranks>>) -> Result<()>,
) -> Result<()> {
    let started = SIZES.iter().filter_map(|name| std::env::var(name).ok()?.parse().ok()).max().unwrap_or(1);
    if choice == RanksArg::Off || (choice == RanksArg::Auto && started < 2) {
        return lead(None);
    }
    if global.device != DeviceArg::Cpu {
        bail!(
            "--device {}: ranks compute on the CPU; --ranks off is for processes apart",
            global.device.name()
        );
    }
    if choice == RanksArg::Auto && cfg!(not(feature = "mpi")) {
        note!("one of {started} processes, each with the whole model: built without MPI (--features mpi)");
        return lead(None);
    }
    let world = MpiWorld::start()?;
    let ranks = world.ranks();
    match (ranks.count(), ranks.rank()) {
        (1, _) => lead(None),
        (_, 0) => {
            let done = lead(Some(Arc::clone(&ranks)));
            Leader::end(&*ranks)?;
            done
        }
        _ => follow_rank_0(global, &ranks),
    }
}

/// In place of the runner's type in a program without MPI: there are no values.
#[cfg(not(feature = "mpi"))]
enum MpiWorld {}

#[cfg(not(feature = "mpi"))]
impl MpiWorld {
    fn start() -> Result<Self> {
        bail!(
            "--ranks mpi: this program was built without MPI; with MPI's and clang's libraries there, \
             `cargo build --release --features mpi` builds it in"
        )
    }

    fn ranks(&self) -> Arc<dyn Ranks> {
        match *self {}
    }
}

/// Returns what this rank has made, if all ranks could make theirs. Otherwise it returns this rank's error or, if it has
/// none, the first other rank's.
pub(crate) fn agreed<T>(
    ranks: Option<&Arc<dyn Ranks>>,
    own: Result<T>,
    mark: impl FnOnce(&T) -> &str,
) -> Result<T> {
    let Some(ranks) = ranks else { return own };
    let all = agree(&**ranks, own.as_ref().map(mark).map_err(|error| format!("{error:#}")));
    let own = own?;
    all?;
    Ok(own)
}

/// Runs a rank other than 0 until rank 0 ends it. If this rank cannot load its part, rank 0 reports why.
fn follow_rank_0(global: &GlobalArgs, ranks: &Arc<dyn Ranks>) -> Result<()> {
    let ended = || Ok(follow(Err("it did not load the model"), &**ranks)?);
    let Ok(file) = agreed(Some(ranks), loading::load(global), |_| "") else { return ended() };
    let model = LoadedModel::new_on(&file, global, Some(Arc::clone(ranks)));
    let Ok(model) = agreed(Some(ranks), model, |model| model.engine.mark()) else { return ended() };
    Ok(follow(model.cpu_session(model.context()).map_err(|error| format!("{error:#}")), &**ranks)?)
}
