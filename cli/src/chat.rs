//! `halfbyte chat`: turns of a conversation, through the model's own template.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};
use halfbyte::generate::{Beginning, CachedSession, Event, FinishReason, Request, generate};
use halfbyte::model::Ranks;
use halfbyte::sampler::Sampler;
use halfbyte_tokenizer::Tokenizer;
use halfbyte_tokenizer::chat::{ChatError, ChatOptions, ChatTemplate, Message, Role};

use super::args::{ChatArgs, GlobalArgs};
use super::console::{Console, Input};
use super::loading::{self, LoadedModel};
use super::output::{self, note};
use super::progress::Waiting;
use super::prompt;
use super::ranks::agreed;
use super::sampling;
use super::signals::{self, Signal, Work};
use super::speculation;

const HELP: &str = "\
/system TEXT  set what the model is told first, and start anew
/reset        forget the conversation, but not the system text
/help         this list
/exit         end (so does Ctrl-D)
Ctrl-C stops a reply, or clears the line. Other lines that begin with a slash are sent as they are; a space in front
sends a line that is a command.";

/// Advice for models whose chat template is missing or can't be used.
const WITHOUT_TEMPLATE: &str =
    "`halfbyte run` continues a text without a chat template, --model names another model";

pub(crate) fn run(global: &GlobalArgs, args: &ChatArgs, ranks: Option<Arc<dyn Ranks>>) -> Result<()> {
    let gguf = agreed(ranks.as_ref(), loading::load(global), |_| "")?;
    let loaded = LoadedModel::with_tokenizer(&gguf, global, ranks.clone());
    let (model, tokenizer) = agreed(ranks.as_ref(), loaded, |(model, _)| model.engine.mark())?;
    let template = ChatTemplate::new(&tokenizer)
        .map_err(|error| anyhow!("{} can't chat: {error}; {WITHOUT_TEMPLATE}", model.name))?;
    let sampler = sampling::sampler(&args.sampling)?;
    let mut console = Console::new(args.history.as_deref())?;
    signals::stop_work(console.is_interactive())?;
    note!("{}: {}, {}", model.name, model.summary(), sampling::summary(&sampler, &model));
    if console.is_interactive() {
        note!("/help lists the commands, Ctrl-D ends.");
    }
    let drafting = speculation::drafting(global, &args.speculation, &tokenizer)?;
    let mut chat = Chat {
        model: &model,
        tokenizer: &tokenizer,
        template,
        // All turns are rendered with the same time, so that the beginning of the last prompt is reused.
        options: options(args),
        cache: model.engine.cached_session_with(&drafting)?,
        sampler,
        args,
        messages: Vec::new(),
    };
    chat.reset(args.system.as_deref());
    if args.prompt.is_given() {
        return chat.turn(&prompt::read(&args.prompt)?.unwrap_or_default());
    }
    let ended = chat.converse(&mut console);
    console.save()?;
    ended
}

/// What the template is told besides the messages.
fn options(args: &ChatArgs) -> ChatOptions {
    let mut options = ChatOptions::default();
    for (name, value) in &args.template_args {
        options.arguments.set(name, value);
    }
    options
}

/// `halfbyte chat --show-prompt`: one message as the model would read it.
pub(crate) fn show_prompt(global: &GlobalArgs, args: &ChatArgs) -> Result<()> {
    let gguf = loading::open(global.model.as_deref())?;
    let tokenizer = loading::tokenizer(global, &gguf)?;
    let name = loading::model_name(global.model.as_deref());
    let template = ChatTemplate::new(&tokenizer).map_err(|error| anyhow!("{name} can't chat: {error}"))?;
    let Some(message) = prompt::read(&args.prompt)? else {
        bail!("--show-prompt: expected a message, from --prompt, --prompt-file or stdin");
    };
    let system = args.system.as_deref().map(Message::system);
    let messages: Vec<_> = system.into_iter().chain([Message::user(message)]).collect();
    let prompt = template.prompt(&tokenizer, &messages, &options(args))?;
    prompt::show(&prompt.text, &prompt.ids, args.json)
}

/// A command to the program, which the model does not see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Command<'a> {
    Exit,
    Help,
    Reset,
    System(&'a str),
}

impl<'a> Command<'a> {
    /// The command that `line` is. A line that begins with a slash and another word is text, such as `/no_think Hello`, which
    /// some models take as an instruction, or a path.
    fn parse(line: &'a str) -> Option<Self> {
        let line = line.strip_prefix('/')?.trim_end();
        let (name, text) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match (name, text.trim()) {
            ("exit" | "quit", "") => Some(Self::Exit),
            ("help", "") => Some(Self::Help),
            ("reset", "") => Some(Self::Reset),
            ("system", text) => Some(Self::System(text)),
            _ => None,
        }
    }
}

struct Chat<'a> {
    model: &'a LoadedModel,
    tokenizer: &'a Tokenizer,
    template: ChatTemplate,
    options: ChatOptions,
    cache: CachedSession,
    sampler: Sampler,
    args: &'a ChatArgs,
    messages: Vec<Message>,
}

impl Chat<'_> {
    /// Reads lines and answers them until they end. After a failed turn, a person is told and goes on; input from a pipe ends
    /// with the error.
    fn converse(&mut self, console: &mut Console) -> Result<()> {
        loop {
            let line = match console.read()? {
                Input::Line(line) => line,
                Input::Cancelled => continue,
                Input::End => return Ok(()),
            };
            let done = match Command::parse(&line) {
                Some(Command::Exit) => return Ok(()),
                Some(command) => self.command(command),
                None if line.trim().is_empty() => Ok(()),
                None => self.turn(&line),
            };
            if signals::ended_by().is_some() {
                return done;
            }
            match done {
                Err(error) if console.is_interactive() && !output::is_closed_pipe(&error) => {
                    note!("error: {error:#}");
                }
                done => done?,
            }
        }
    }

    fn command(&mut self, command: Command<'_>) -> Result<()> {
        match command {
            Command::Exit => {}
            Command::Help => note!("{HELP}"),
            Command::Reset => {
                let system =
                    self.messages.first().filter(|m| m.role == Role::System).map(|m| m.content.clone());
                self.reset(system.as_deref());
                note!("The conversation starts anew.");
            }
            Command::System("") => bail!("/system needs a text"),
            Command::System(text) => {
                self.reset(Some(text));
                note!("The conversation starts anew, with this system text.");
            }
        }
        Ok(())
    }

    fn reset(&mut self, system: Option<&str>) {
        self.messages.clear();
        self.messages.extend(system.map(Message::system));
    }

    /// One message and the reply to it. After an error, or a reply of which nothing came, both are forgotten.
    fn turn(&mut self, text: &str) -> Result<()> {
        let before = self.messages.clone();
        self.messages.push(Message::user(text));
        let reply = self.reply();
        match &reply {
            Ok(text) if !text.is_empty() => self.messages.push(Message::assistant(text)),
            _ => self.messages = before,
        }
        reply.map(drop)
    }

    fn reply(&mut self) -> Result<String> {
        let ids = self.prompt()?;
        let work = Work::new();
        let flow = || if work.is_stopped() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let mut reading = Some(Waiting::for_prompt(ids.len()));
        let mut request = Request {
            max_tokens: self.args.n.unwrap_or(usize::MAX),
            beginning: Beginning::Turn,
            ..Request::new(ids, self.sampler.clone())
        };
        let reply = generate(&mut self.cache, self.tokenizer, &mut request, |event| {
            match event {
                Event::Prompt { done, total } if done == total => reading = None,
                Event::Prompt { done, .. } => reading.iter().for_each(|reading| reading.show(*done)),
                Event::Text(text) => output::reply(text)?,
                _ => {}
            }
            Ok(flow())
        });
        // The next reply goes on with the random numbers.
        self.sampler = request.sampler;
        let reply = reply?;
        // It is still shown if the prompt was stopped.
        drop(reading);
        // Ctrl-C stops only the reply; other signals end the program.
        if let Some(signal) = work.stopped_by().filter(|&signal| signal != Signal::Interrupt) {
            signals::end_by(signal);
        }
        drop(work);
        output::text("\n")?;
        match reply.reason {
            FinishReason::Cancelled => note!("[stopped]"),
            FinishReason::ContextFull => {
                let (context, advice) = (self.model.context(), self.model.context_advice());
                note!("[the context of {context} tokens is full; {advice}]");
            }
            _ => {}
        }
        Ok(reply.text)
    }

    /// The conversation as the template writes it. If that leaves no room for a reply, or with `--drop-oldest` less
    /// than a quarter of the context, the oldest turns go where the user has allowed it, and else it is an error.
    fn prompt(&mut self) -> Result<Vec<u32>> {
        let context = self.model.context();
        let mut dropped = 0;
        loop {
            let prompt = self.template.prompt(self.tokenizer, &self.messages, &self.options);
            let ids = prompt.map_err(|error| self.with_advice(&error))?.ids;
            let room = context.saturating_sub(ids.len());
            if self.args.drop_oldest && room < context.div_ceil(4) && self.drop_turn() {
                dropped += 1;
                continue;
            }
            if room == 0 {
                bail!(
                    "the conversation is {} tokens long and the context holds {context}, which leaves no room for a \
                     reply; {}, /reset starts anew, --drop-oldest forgets the oldest turns",
                    ids.len(),
                    self.model.context_advice()
                );
            }
            if dropped > 0 {
                note!(
                    "[forgot the oldest {}]",
                    if dropped == 1 { "turn".into() } else { format!("{dropped} turns") }
                );
            }
            return Ok(ids);
        }
    }

    /// Why the template wrote no prompt, and what to do next.
    fn with_advice(&self, error: &ChatError) -> anyhow::Error {
        let told = self.messages.first().is_some_and(|message| message.role == Role::System);
        let advice = match error {
            ChatError::Refused { .. } if told => "some templates take no system text: leave out --system",
            ChatError::Refused { .. } => "/reset starts anew",
            ChatError::PrivateCharacters => "send the text without them",
            _ => WITHOUT_TEMPLATE,
        };
        anyhow!("{error}; {advice}")
    }

    /// Forgets the oldest message of the user with its reply; the last one stays.
    fn drop_turn(&mut self) -> bool {
        let first = self.messages.iter().position(|m| m.role == Role::User);
        let last = self.messages.iter().rposition(|m| m.role == Role::User);
        match (first, last) {
            (Some(first), Some(last)) if first < last => {
                let next = self.messages[first + 1..].iter().position(|m| m.role == Role::User);
                self.messages.drain(first..first + 1 + next.unwrap_or(0));
                true
            }
            _ => false,
        }
    }
}
