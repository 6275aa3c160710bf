//! A struct that keeps a model, and answers from four threads at once:
//! `cargo run --release -p halfbyte-examples --example four_threads -- M.gguf`.

use std::error::Error;

use halfbyte::Model;
use halfbyte::generate::{Request, SchedulerHandle};

/// What an application keeps: no lifetimes, and it can be shared between threads.
#[derive(Clone)]
struct Storyteller {
    model: Model,
    scheduler: SchedulerHandle,
}

impl Storyteller {
    fn new(path: &str) -> Result<Self, Box<dyn Error>> {
        let model = Model::options().context(256).load(path)?;
        let scheduler = model.scheduler(4)?;
        Ok(Self { model, scheduler })
    }

    fn go_on(&self, beginning: &str) -> Result<String, Box<dyn Error>> {
        let request = Request { max_tokens: 24, ..self.model.continuation(beginning)? };
        Ok(self.scheduler.submit(request).text()?.0)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let storyteller = Storyteller::new(&std::env::args().nth(1).ok_or("expected the path of a model")?)?;
    let beginnings = ["It was a dark night", "The captain", "Once upon a time", "In the morning"];
    let threads = beginnings.map(|beginning| {
        let storyteller = storyteller.clone();
        std::thread::spawn(move || storyteller.go_on(beginning).map_err(|error| error.to_string()))
    });
    for (beginning, thread) in beginnings.into_iter().zip(threads) {
        println!("{beginning}{}", thread.join().map_err(|_| "a thread panicked")??);
    }
    Ok(())
}
