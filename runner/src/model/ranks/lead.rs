//! Rank 0 decides what is computed, and sends it to the other ranks, which compute the same.

use std::sync::Arc;

use super::super::{CannotCut, CpuSession, Error, SavedState, Sequence};
use super::Ranks;
use std::fmt::Display;

/// A call that all ranks make. Its message is a byte for the kind, and 32-bit numbers, little-endian.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Order {
    End,
    Truncate(u32),
    Prompt(Vec<u32>),
    Window(Vec<u32>),
}

impl Order {
    fn encode(&self) -> Vec<u8> {
        let (kind, numbers) = match self {
            Self::End => (0, &[][..]),
            Self::Truncate(len) => (1, std::slice::from_ref(len)),
            Self::Prompt(ids) => (2, ids.as_slice()),
            Self::Window(ids) => (3, ids.as_slice()),
        };
        let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
        std::iter::once(kind).chain(numbers).collect()
    }

    fn decode(message: &[u8]) -> Result<Self, Error> {
        let senseless =
            || Error::Link { why: format!("{} bytes that are no order of rank 0", message.len()) };
        let (&kind, bytes) = message.split_first().ok_or_else(senseless)?;
        let (words, []) = bytes.as_chunks::<4>() else { return Err(senseless()) };
        let numbers: Vec<u32> = words.iter().map(|&word| u32::from_le_bytes(word)).collect();
        match (kind, numbers.as_slice()) {
            (0, []) => Ok(Self::End),
            (1, &[len]) => Ok(Self::Truncate(len)),
            (2, _) => Ok(Self::Prompt(numbers)),
            (3, _) => Ok(Self::Window(numbers)),
            _ => Err(senseless()),
        }
    }
}

/// Rank 0's context, with which all ranks compute: each call has the others, which [`follow`], make the same one.
///
/// They go on until [`Leader::end`].
#[derive(Debug)]
pub struct Leader {
    session: CpuSession,
    ranks: Arc<dyn Ranks>,
}

impl Leader {
    /// Leads with `session`, which is on rank 0's share of the model.
    pub fn new(session: CpuSession, ranks: Arc<dyn Ranks>) -> Self {
        Self { session, ranks }
    }

    /// Ends [`follow`] on the other ranks, whether or not there was a leader.
    ///
    /// # Errors
    /// [`Error::Link`].
    pub fn end(ranks: &dyn Ranks) -> Result<(), Error> {
        ranks.broadcast(0, &mut Order::End.encode())
    }

    fn order(&self, order: &Order) -> Result<(), Error> {
        self.ranks.broadcast(0, &mut order.encode())
    }
}

impl Sequence for Leader {
    fn context(&self) -> usize {
        Sequence::context(&self.session)
    }

    fn chunk(&self) -> usize {
        Sequence::chunk(&self.session)
    }

    fn n_vocab(&self) -> usize {
        Sequence::n_vocab(&self.session)
    }

    fn len(&self) -> usize {
        self.session.len()
    }

    fn cut(&mut self, len: usize) -> Result<(), CannotCut> {
        let before = self.session.len();
        self.session.cut(len)?;
        if len < before {
            // A broken link is found by the next call, which can say so.
            let _ = self.order(&Order::Truncate(u32::try_from(len).unwrap_or(u32::MAX)));
        }
        Ok(())
    }

    fn can_cut(&self) -> bool {
        self.session.can_cut()
    }

    fn save(&self) -> Result<SavedState, Error> {
        Err(Error::Unsaved)
    }

    fn restore(&mut self, _: &SavedState) -> Result<(), Error> {
        Err(Error::OtherState)
    }

    fn prompt(&mut self, ids: &[u32]) -> Result<&mut [f32], Error> {
        // Wrong arguments are refused before they are sent to the other ranks.
        self.session.check(ids)?;
        self.order(&Order::Prompt(ids.to_vec()))?;
        let Self { session, ranks } = self;
        session.feed(ids).inspect_err(|error| ranks.fail(&error.to_string()))
    }

    fn window(&mut self, ids: &[u32], each: &mut dyn FnMut(usize, &mut [f32])) -> Result<(), Error> {
        self.session.check(ids)?;
        self.order(&Order::Window(ids.to_vec()))?;
        let Self { session, ranks } = self;
        session.feed_all(ids, each).inspect_err(|error| ranks.fail(&error.to_string()))
    }
}

/// Makes the calls that rank 0 sends, on `session`, until rank 0 calls [`Leader::end`]. If the session could not be made,
/// that is the only call that may come.
///
/// # Errors
/// [`Error::Link`], those of forward passes, and the one in place of the session; all ranks are told.
pub fn follow<E: Display>(mut session: Result<CpuSession, E>, ranks: &dyn Ranks) -> Result<(), Error> {
    loop {
        match next(&mut session, ranks) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => {
                ranks.fail(&error.to_string());
                return Err(error);
            }
        }
    }
}

/// Makes the next call that rank 0 sends. Returns false after the last one.
fn next<E: Display>(session: &mut Result<CpuSession, E>, ranks: &dyn Ranks) -> Result<bool, Error> {
    let mut message = Vec::new();
    ranks.broadcast(0, &mut message)?;
    let order = Order::decode(&message)?;
    if order == Order::End {
        return Ok(false);
    }
    let session = match session {
        Ok(session) => session,
        Err(error) => {
            return Err(Error::Link { why: format!("rank 0 goes on, where this rank could not: {error}") });
        }
    };
    match order {
        Order::End => {}
        Order::Truncate(len) => {
            // Rank 0 has cut the same state, so it can be cut.
            let _ = session.cut(len as usize);
        }
        Order::Prompt(ids) => {
            session.feed(&ids)?;
        }
        Order::Window(ids) => session.feed_all(&ids, |_, _| ())?,
    }
    Ok(true)
}

/// Whether all ranks could do something: each says how it went, with the same `mark` if it is to be the same everywhere.
///
/// # Errors
/// [`Error::Rank`] on all ranks, for the first one that failed or has another mark than rank 0; [`Error::Link`].
pub fn agree(ranks: &dyn Ranks, own: Result<&str, String>) -> Result<(), Error> {
    let said: Vec<u8> = match &own {
        Ok(mark) => [b"+", mark.as_bytes()].concat(),
        Err(why) => [b"-", why.as_bytes()].concat(),
    };
    let mut all = Vec::new();
    for rank in 0..ranks.count() {
        let mut message = if rank == ranks.rank() { said.clone() } else { Vec::new() };
        ranks.broadcast(rank, &mut message)?;
        all.push(message);
    }
    for (rank, message) in all.iter().enumerate() {
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        match message.split_first() {
            Some((b'+', mark)) if all[0].first() != Some(&b'+') || mark == &all[0][1..] => {}
            Some((b'+', mark)) => {
                let why =
                    format!("it has {:?}, rank 0 {:?}: expected the same", text(mark), text(&all[0][1..]));
                return Err(Error::Rank { rank, why });
            }
            Some((b'-', why)) => return Err(Error::Rank { rank, why: text(why) }),
            _ => return Err(Error::Link { why: format!("rank {rank} sent what is no answer") }),
        }
    }
    Ok(())
}
