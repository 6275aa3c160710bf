//! Measures where the time on the GPU goes, with two events around every launch.
//!
//! The times of one stream's launches add up to the stream's time; profile on one stream, since kernels that overlap
//! are each charged with the whole time in which they overlap.

mod report;

pub use report::{Report, Row};

use crate::Error;
use halfbyte_cuda_driver::{Context, Event, Stream, Timing};
use std::cell::RefCell;

/// What a launch does, for the table's rates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Arithmetic operations, a multiply-add being two; 0 for a kernel that only moves.
    pub operations: u64,
    /// Bytes read and written, each once.
    pub bytes: u64,
}

/// Measures the time of launches.
///
/// A launcher takes a [`Queue`]: either a stream alone, which costs one comparison a launch, or a stream with a profiler
/// that times its launches.
///
/// ```no_run
/// # fn f(context: &halfbyte_cuda_driver::Context, stream: &halfbyte_cuda_driver::Stream) -> Result<(), Box<dyn std::error::Error>> {
/// let profiler = halfbyte_cuda_kernels::Profiler::new(context);
/// let queue = profiler.queue(stream);
/// // ... launches on `queue` ...
/// println!("{}", profiler.take()?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Profiler {
    context: Context,
    launches: RefCell<Vec<Launch>>,
    /// Events of launches that were reported, to be used again.
    spare: RefCell<Vec<(Event, Event)>>,
}

#[derive(Debug)]
struct Launch {
    kernel: String,
    shape: String,
    work: Work,
    events: (Event, Event),
}

/// The stream that launches go to, and the profiler that times them, if there is one.
#[derive(Debug, Clone, Copy)]
pub struct Queue<'a> {
    stream: &'a Stream,
    profiler: Option<&'a Profiler>,
}

impl<'a> From<&'a Stream> for Queue<'a> {
    fn from(stream: &'a Stream) -> Self {
        Self { stream, profiler: None }
    }
}

impl<'a> Queue<'a> {
    /// The stream.
    #[must_use]
    pub fn stream(&self) -> &'a Stream {
        self.stream
    }

    /// Runs `launch`, between two events if the queue has a profiler.
    pub(crate) fn timed(
        &self,
        kernel: &str,
        describe: impl FnOnce() -> (String, Work),
        launch: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self.profiler {
            None => launch(),
            Some(profiler) => profiler.timed(self.stream, kernel, describe, launch),
        }
    }
}

impl Profiler {
    /// A profiler of launches in `context`.
    #[must_use]
    pub fn new(context: &Context) -> Self {
        Self { context: context.clone(), launches: RefCell::default(), spare: RefCell::default() }
    }

    /// Returns a queue on `stream` whose launches are timed.
    #[must_use]
    pub fn queue<'a>(&'a self, stream: &'a Stream) -> Queue<'a> {
        Queue { stream, profiler: Some(self) }
    }

    /// Waits for the timed launches, returns them as a table, and forgets them.
    ///
    /// # Errors
    /// [`Error::Driver`], also for work that failed.
    pub fn take(&self) -> Result<Report, Error> {
        let launches = self.launches.take();
        let mut times = Vec::with_capacity(launches.len());
        for launch in &launches {
            let (start, end) = &launch.events;
            end.synchronize()?;
            times.push(f64::from(end.milliseconds_since(start)?));
        }
        let rows = launches.iter().zip(times).map(|(l, ms)| (&*l.kernel, &*l.shape, l.work, ms));
        let report = Report::of(rows);
        self.spare.borrow_mut().extend(launches.into_iter().map(|launch| launch.events));
        Ok(report)
    }

    fn timed(
        &self,
        stream: &Stream,
        kernel: &str,
        describe: impl FnOnce() -> (String, Work),
        launch: impl FnOnce() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let spare = self.spare.borrow_mut().pop();
        let events = match spare {
            Some(events) => events,
            None => (Event::new(&self.context, Timing::On)?, Event::new(&self.context, Timing::On)?),
        };
        events.0.record(stream)?;
        launch()?;
        events.1.record(stream)?;
        let (shape, work) = describe();
        self.launches.borrow_mut().push(Launch { kernel: kernel.into(), shape, work, events });
        Ok(())
    }
}
