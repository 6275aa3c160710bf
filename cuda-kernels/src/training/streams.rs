//! A second stream for the gradients of the weights.
//!
//! In a backward pass the gradient of the activations goes down the layers in a strict chain, but the gradients of the
//! weights are not needed until the optimizer runs. On a stream of their own they fill the multiprocessors that the chain
//! leaves idle in its last, half-empty waves. They only read what the chain wrote, but the chain overwrites it a little
//! later, so each stream has to wait for the other in the right places:
//!
//! ```text
//! main   -- dy --fork-- dx = dy W -- ... -- waitfor -- overwrite dy -- ... -- join --
//!                 \                         /                              /
//! side             on2 -- dW += dy^T x -- back ---------------------------
//! ```
//!
//! With one stream every call here does nothing, the order of launches stays the same, and so do the bits: a kernel
//! gets the same inputs either way and adds them in the same order. The method names are those of the
//! trainer that the scheme comes from.

use crate::Error;
use halfbyte_cuda_driver::{Context, Event, Stream, StreamKind, Timing};

/// One stream, or two with the events between them.
///
/// Fork after what the side work reads has been queued and *before* the next launch on the main stream, else the side
/// work waits for that launch, too.
///
/// ```no_run
/// # fn step(context: &halfbyte_cuda_driver::Context) -> Result<(), Box<dyn std::error::Error>> {
/// use halfbyte_cuda_kernels::training::{Mark, Streams};
/// let mut streams = Streams::new(context, 2)?;
/// let mut gradient_read = Mark::new(context)?;
/// streams.fork()?;
/// // ... dx = dy W, on streams.current() ...
/// streams.on2();
/// // ... dW += dy^T x, on streams.current(): the second stream now ...
/// streams.back(&mut gradient_read)?;
/// streams.waitfor(&gradient_read)?;
/// // ... overwrite dy, on streams.current() ...
/// streams.join()?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Streams {
    main: Stream,
    side: Option<Side>,
    on_side: bool,
}

#[derive(Debug)]
struct Side {
    stream: Stream,
    forked: Event,
    joined: Event,
}

/// A place in the side stream's work that the main stream can wait for.
#[derive(Debug)]
pub struct Mark {
    event: Event,
    /// Whether it was ever set. With one stream it never is, and waiting for it does nothing.
    set: bool,
}

impl Mark {
    /// A mark that is not set.
    ///
    /// # Errors
    /// [`Error::Driver`] if the driver has no room for an event.
    pub fn new(context: &Context) -> Result<Self, Error> {
        Ok(Self { event: Event::new(context, Timing::Off)?, set: false })
    }
}

impl Streams {
    /// The context's default stream, and with `count` 2 a second one beside it.
    ///
    /// The second one is of the non-blocking kind: the default stream would wait for all others, one after the other.
    ///
    /// # Errors
    /// [`Error::StreamCount`] unless `count` is 1 or 2; [`Error::Driver`].
    pub fn new(context: &Context, count: usize) -> Result<Self, Error> {
        Self::beside(Stream::legacy_default(context), count)
    }

    /// `main`, and with `count` 2 a second stream beside it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn beside(main: Stream, count: usize) -> Result<Self, Error> {
        let side = match count {
            1 => None,
            2 => {
                let context = main.context();
                Some(Side {
                    stream: Stream::new(context, StreamKind::NonBlocking)?,
                    forked: Event::new(context, Timing::Off)?,
                    joined: Event::new(context, Timing::Off)?,
                })
            }
            got => return Err(Error::StreamCount { got }),
        };
        Ok(Self { main, side, on_side: false })
    }

    /// How many streams there are.
    #[must_use]
    pub fn count(&self) -> usize {
        1 + usize::from(self.side.is_some())
    }

    /// The stream that a launch goes to now.
    #[must_use]
    pub fn current(&self) -> &Stream {
        match &self.side {
            Some(side) if self.on_side => &side.stream,
            _ => &self.main,
        }
    }

    /// Makes the second stream wait for everything that the main one has queued so far.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn fork(&mut self) -> Result<(), Error> {
        if let Some(side) = &self.side {
            side.forked.record(&self.main)?;
            side.stream.wait_event(&side.forked)?;
        }
        Ok(())
    }

    /// Sends launches to the second stream, until [`back`](Self::back).
    pub fn on2(&mut self) {
        self.on_side = true;
    }

    /// Sets `reader` after the second stream's work so far, which has then read its inputs, and sends launches to the main
    /// stream again.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn back(&mut self, reader: &mut Mark) -> Result<(), Error> {
        self.on_side = false;
        if let Some(side) = &self.side {
            reader.event.record(&side.stream)?;
            reader.set = true;
        }
        Ok(())
    }

    /// Makes the main stream wait for a mark before it writes what the marked work reads. Waiting for a
    /// mark that was never set does nothing.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn waitfor(&self, reader: &Mark) -> Result<(), Error> {
        if reader.set { Ok(self.main.wait_event(&reader.event)?) } else { Ok(()) }
    }

    /// Makes the main stream wait for everything on the second one.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn join(&mut self) -> Result<(), Error> {
        self.on_side = false;
        if let Some(side) = &self.side {
            side.joined.record(&side.stream)?;
            self.main.wait_event(&side.joined)?;
        }
        Ok(())
    }

    /// Waits until everything on all streams has run.
    ///
    /// # Errors
    /// [`Error::Driver`], also for work that failed.
    pub fn synchronize(&self) -> Result<(), Error> {
        if let Some(side) = &self.side {
            side.stream.synchronize()?;
        }
        Ok(self.main.synchronize()?)
    }
}
