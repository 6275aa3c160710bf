//! Where the time of a forward pass goes, phase by phase.

use std::time::{Duration, Instant};

/// A part of the forward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Rows of the embedding matrix.
    Embedding,
    /// All norms, those of heads included.
    Norms,
    /// Queries, keys and values, with gates and the activations' quantization.
    Qkv,
    /// Rotations of queries and keys.
    Rope,
    /// New keys and values into the cache.
    KvWrite,
    /// Attention over the cache.
    Attention,
    /// The convolution and the state of recurrent layers.
    Recurrence,
    /// The mixer's output matrix, and the residual sum.
    Output,
    /// The feed-forward network's gate and up.
    GateUp,
    /// The product of the two.
    Activation,
    /// The feed-forward network's down, and the residual sum.
    Down,
    /// The output matrix.
    Logits,
}

impl Phase {
    /// Every phase, in the order of a forward pass.
    pub const ALL: [Self; 12] = [
        Self::Embedding,
        Self::Norms,
        Self::Qkv,
        Self::Rope,
        Self::KvWrite,
        Self::Attention,
        Self::Recurrence,
        Self::Output,
        Self::GateUp,
        Self::Activation,
        Self::Down,
        Self::Logits,
    ];

    /// What tables call it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Embedding => "embedding",
            Self::Norms => "norms",
            Self::Qkv => "q/k/v",
            Self::Rope => "rope",
            Self::KvWrite => "kv write",
            Self::Attention => "attention",
            Self::Recurrence => "recurrence",
            Self::Output => "output",
            Self::GateUp => "gate/up",
            Self::Activation => "activation",
            Self::Down => "down",
            Self::Logits => "logits",
        }
    }
}

/// What a phase has come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseTotals {
    /// Times that it was done.
    pub calls: usize,
    /// Wall time in all.
    pub time: Duration,
    /// Bytes of weights, or of keys and values, that it had to read; 0 where that is not counted.
    pub bytes: usize,
    /// Multiplications and additions; 0 where they are not counted.
    pub operations: usize,
}

/// The phases' totals.
#[derive(Clone, Debug, Default)]
pub struct Profile {
    totals: [PhaseTotals; Phase::ALL.len()],
}

impl Profile {
    /// The totals of a phase.
    pub fn phase(&self, phase: Phase) -> PhaseTotals {
        self.totals[phase as usize]
    }

    /// The time of all phases.
    pub fn time(&self) -> Duration {
        self.totals.iter().map(|totals| totals.time).sum()
    }
}

/// Times phases that follow each other; turned off it costs a comparison a phase.
#[derive(Debug, Default)]
pub(super) struct Profiler(Option<Box<(Profile, Instant)>>);

impl Profiler {
    /// Turns it on, from nothing.
    pub(super) fn start(&mut self) {
        self.0 = Some(Box::new((Profile::default(), Instant::now())));
    }

    /// Turns it off and gives what it has, nothing if it was off.
    pub(super) fn finish(&mut self) -> Profile {
        self.0.take().map(|running| running.0).unwrap_or_default()
    }

    /// What comes next does not follow what came before.
    pub(super) fn restart(&mut self) {
        if let Some(running) = &mut self.0 {
            running.1 = Instant::now();
        }
    }

    /// `phase` ends here, and it began where the last one ended. `work` gives its bytes and operations.
    pub(super) fn lap(&mut self, phase: Phase, work: impl FnOnce() -> (usize, usize)) {
        if let Some(running) = &mut self.0 {
            let (profile, since) = &mut **running;
            let now = Instant::now();
            let (bytes, operations) = work();
            let totals = &mut profile.totals[phase as usize];
            totals.calls += 1;
            totals.time += now - *since;
            totals.bytes += bytes;
            totals.operations += operations;
            *since = now;
        }
    }

    /// A phase whose work is not counted.
    pub(super) fn plain(&mut self, phase: Phase) {
        self.lap(phase, || (0, 0));
    }
}
