//! The memory that one run of a template may use.
//!
//! minijinja counts instructions, but a single instruction may double a string, so a short loop fills any memory. A
//! [`Meter`] is charged before every operation with the bytes that it will make or look through. What was charged is
//! never given back: the sum bounds both the memory that is in use at any time and the work of the operations that are
//! native code. Every value in memory was charged with its full size, so nothing can be larger than the sum either.
//!
//! Values also have at most [`MAX_DEPTH`] levels, and a namespace holds no namespace. Otherwise dropping a value could
//! overflow the stack, and a namespace that holds itself would never be freed.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use minijinja::value::{Object, Value, ValueKind};
use minijinja::{Error, ErrorKind, State};

use super::{MAX_MEMORY_BYTES, python};

/// The bytes that a value takes beside the bytes of its text.
pub(super) const VALUE_BYTES: usize = 24;

/// The most levels of lists and dictionaries inside one another.
pub(super) const MAX_DEPTH: usize = 64;

/// The name under which a run's state keeps its meter.
const NAME: &str = "meter";

/// The cause in an error of a template that needs too much memory.
#[derive(Debug, thiserror::Error)]
#[error("the memory limit is reached")]
pub(super) struct Exhausted;

/// What is left of [`MAX_MEMORY_BYTES`].
#[derive(Debug)]
pub(super) struct Meter {
    // A run has one thread; the number is atomic because values have to be `Sync`.
    left: AtomicUsize,
}

impl Object for Meter {}

impl Meter {
    /// The meter of the run that `state` belongs to.
    pub(super) fn of(state: &State<'_, '_>) -> Arc<Self> {
        state.get_or_set_temp_object(NAME, || Self { left: AtomicUsize::new(MAX_MEMORY_BYTES) })
    }

    /// Takes `bytes` from what is left.
    ///
    /// # Errors
    /// An error with the cause [`Exhausted`] if less is left.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), Error> {
        match self.left.load(Ordering::Relaxed).checked_sub(bytes) {
            Some(left) => {
                self.left.store(left, Ordering::Relaxed);
                Ok(())
            }
            None => {
                self.left.store(0, Ordering::Relaxed);
                Err(Error::new(ErrorKind::InvalidOperation, "memory limit").with_source(Exhausted))
            }
        }
    }

    /// Takes the bytes of `n` values from what is left.
    pub(super) fn charge_values(&self, n: usize) -> Result<(), Error> {
        self.charge(n.saturating_mul(VALUE_BYTES))
    }

    /// Takes the bytes of a value and of all that it holds from what is left.
    ///
    /// # Errors
    /// As [`charge`](Self::charge); a value of more than [`MAX_DEPTH`] levels.
    pub(super) fn charge_tree(&self, value: &Value) -> Result<(), Error> {
        self.walk(value, &mut |meter, value| {
            let bytes = value.as_str().map_or(0, str::len).max(value.as_bytes().map_or(0, <[u8]>::len));
            meter.charge(VALUE_BYTES + bytes)
        })
    }

    /// Takes the bytes of a value and of all that it holds, but not those of their texts: the cost of putting existing
    /// values into a new list.
    pub(super) fn charge_nodes(&self, value: &Value) -> Result<(), Error> {
        self.walk(value, &mut |meter, _| meter.charge(VALUE_BYTES))
    }

    /// Writes the text of a value to `out`, charging for it piece by piece.
    pub(super) fn write_text(&self, value: &Value, out: &mut dyn fmt::Write) -> Result<(), Error> {
        let mut charged = Charged { meter: self, out, error: None };
        match python::write(value, &mut charged) {
            Ok(()) => Ok(()),
            Err(error) => Err(charged.error.unwrap_or_else(|| error.into())),
        }
    }

    /// Calls `visit` for a value and all that it holds.
    fn walk(
        &self,
        value: &Value,
        visit: &mut dyn FnMut(&Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.walk_level(value, MAX_DEPTH, visit)
    }

    fn walk_level(
        &self,
        value: &Value,
        levels: usize,
        visit: &mut dyn FnMut(&Self, &Value) -> Result<(), Error>,
    ) -> Result<(), Error> {
        visit(self, value)?;
        let kind = value.kind();
        if !matches!(kind, ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
            return Ok(());
        }
        let Some(levels) = levels.checked_sub(1) else {
            let what = format!("lists and dictionaries inside one another, more than {MAX_DEPTH} deep");
            return Err(Error::new(ErrorKind::InvalidOperation, what));
        };
        for item in value.try_iter()? {
            if kind == ValueKind::Map {
                self.walk_level(&value.get_item(&item)?, levels, visit)?;
            }
            self.walk_level(&item, levels, visit)?;
        }
        Ok(())
    }

    /// Refuses to store a value in a namespace if it is one or holds one.
    pub(super) fn require_no_namespace(&self, value: &Value) -> Result<(), Error> {
        self.walk(value, &mut |meter, value| {
            meter.charge(1)?;
            let is_namespace =
                value.as_object().is_some_and(|object| object.type_name().ends_with("::Namespace"));
            if is_namespace {
                let what = "a namespace cannot be stored in a namespace";
                return Err(Error::new(ErrorKind::InvalidOperation, what));
            }
            Ok(())
        })
    }
}

/// Charges a meter for what is written.
struct Charged<'a> {
    meter: &'a Meter,
    out: &'a mut dyn fmt::Write,
    error: Option<Error>,
}

impl fmt::Write for Charged<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if let Err(error) = self.meter.charge(text.len()) {
            self.error = Some(error);
            return Err(fmt::Error);
        }
        self.out.write_str(text)
    }
}
