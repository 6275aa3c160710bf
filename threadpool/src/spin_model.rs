//! Waiting in a model, in the place of spin.rs.

/// One wait. In a model no time passes: every wait has spun enough at once. The sleep that follows looks at what is
/// waited for before it sleeps, so that waits which end by spinning are among those that are tried.
#[derive(Debug, Default)]
pub(crate) struct Spin {}

impl Spin {
    /// `false`: the thread should sleep.
    pub(crate) fn turn(&mut self) -> bool {
        false
    }
}
