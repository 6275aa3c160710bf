//! Streams two replies at once in an async program:
//! `cargo run --release -p halfbyte-examples --example async_replies -- M.gguf`.
//!
//! Forward passes take all threads of the model for milliseconds, so they run on a thread of their own and not on the
//! runtime's. Requests go to it through a channel of the standard library, and events come back through one of tokio's.

use std::error::Error;
use std::ops::ControlFlow;
use std::sync::{Arc, mpsc};

use halfbyte::Model;
use halfbyte::generate::{Event, Listener, Request, Scheduler};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The scheduler's end of a reply's channel. Dropping the receiver cancels the reply.
struct Task(UnboundedSender<Event>);

impl Listener for Task {
    fn is_wanted(&self) -> bool {
        !self.0.is_closed()
    }

    fn event(&mut self, event: Event) -> ControlFlow<()> {
        if self.0.send(event).is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

/// Submits requests to a scheduler on a thread of its own, which ends with the last clone and the last reply.
#[derive(Clone)]
struct AsyncScheduler(mpsc::Sender<(Request, Task)>);

impl AsyncScheduler {
    /// Makes up to `slots` replies at once.
    fn new(model: &Model, slots: usize) -> Result<Self, Box<dyn Error>> {
        let sessions = (0..slots).map(|_| model.cached_session()).collect::<Result<Vec<_>, _>>()?;
        let (sender, requests) = mpsc::channel();
        let tokenizer = Arc::clone(model.tokenizer());
        std::thread::spawn(move || {
            if let Ok(scheduler) = Scheduler::new(sessions, &tokenizer) {
                scheduler.run(&requests, || ());
            }
        });
        Ok(Self(sender))
    }

    /// The events of the reply. The channel ends after `Event::Done` or `Event::Failed`.
    fn submit(&self, request: Request) -> UnboundedReceiver<Event> {
        let (sender, events) = unbounded_channel();
        // Without a scheduler the sender is dropped, and the channel ends at once.
        let _ = self.0.send((request, Task(sender)));
        events
    }
}

/// Prints each piece of a reply as it comes.
async fn tell(name: &str, mut events: UnboundedReceiver<Event>) {
    while let Some(event) = events.recv().await {
        match event {
            Event::Text(text) => println!("{name}: {text:?}"),
            Event::Done(finish) => println!("{name} has ended: {finish:?}"),
            Event::Failed(error) => println!("{name} has failed: {error}"),
            _ => {}
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let model = Model::load(std::env::args().nth(1).ok_or("expected the path of a model")?)?;
    let scheduler = AsyncScheduler::new(&model, 2)?;
    tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
        let captain = Request { max_tokens: 12, ..model.continuation("The captain")? };
        let night = Request { max_tokens: 12, ..model.continuation("It was a dark night")? };
        let other = tokio::spawn(tell("captain", scheduler.submit(captain)));
        tell("night", scheduler.submit(night)).await;
        Ok(other.await?)
    })
}
