//! Loads a GGUF file and streams a reply: `cargo run --release -p halfbyte-examples --example stream_reply -- M.gguf`.

use halfbyte::Model;
use halfbyte::generate::Event;
use halfbyte::tokenizer::chat::{Message, Role};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let model = Model::load(std::env::args().nth(1).ok_or("expected the path of a model")?)?;
    let question = Message { role: Role::User, content: "What is the capital of France?".into() };
    for event in model.scheduler(1)?.submit(model.chat(&[question])?) {
        if let Event::Text(text) = event {
            print!("{text}");
        }
    }
    Ok(())
}
