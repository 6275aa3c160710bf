//! `--ranks`: processes that share a model, each with a part of it (`docs/scaling.md`).

#[cfg(feature = "mpi")]
mod mpi;
#[cfg(not(feature = "mpi"))]
#[path = "ranks/without.rs"]
mod mpi;

use std::sync::Arc;

use anyhow::{Result, bail};
use halfbyte::model::{Leader, Ranks, agree, follow};

use super::args::{DeviceArg, GlobalArgs, RanksArg};
use super::engine::{self, Engine};
use super::output::note;

/// What programs that start several processes tell each of them: how many there are. Open MPI's, and that of MPICH and
/// its kin.
const SIZES: [&str; 2] = ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE"];

/// Does `lead` with the processes that `choice` means: with none, or on rank 0, which the others follow.
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
    if choice == RanksArg::Auto && !mpi::BUILT_IN {
        note!("one of {started} processes, each with the whole model: built without MPI (--features mpi)");
        return lead(None);
    }
    let world = mpi::World::start()?;
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

/// What rank 0 goes on with if all ranks could make it too, and its error, or else the first other rank's, if not.
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

/// A rank other than 0. What keeps it from taking part is said by rank 0.
fn follow_rank_0(global: &GlobalArgs, ranks: &Arc<dyn Ranks>) -> Result<()> {
    let ended = || Ok(follow(Err("it did not load the model"), &**ranks)?);
    let Ok(file) = agreed(Some(ranks), engine::load(global), |_| "") else { return ended() };
    let engine = Engine::new_on(&file, global, Some(Arc::clone(ranks)));
    let Ok(engine) = agreed(Some(ranks), engine, |engine| engine.mark()) else { return ended() };
    Ok(follow(engine.session(), &**ranks)?)
}
