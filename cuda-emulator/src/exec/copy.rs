//! `cp.async`: what is in flight, and its delivery at the wait.
//!
//! The source is read when the copy is issued; the destination gets the bytes when the thread that issued it waits,
//! no earlier. Groups are per thread.

use std::collections::VecDeque;

use super::block::Block;
use super::global::misaligned;
use super::registers::LANES;
use super::shared::Shared;
use super::{Problem, lanes_of, windows};
use crate::decode::program::CopyAsync;
use crate::fault::Fault;

/// One copy of one lane in flight.
#[derive(Debug)]
struct Copy {
    lane: u8,
    size: u8,
    /// The lane's group; meaningful once committed.
    group: u32,
    to: u32,
    bytes: [u8; 16],
}

/// The copies of a warp.
#[derive(Debug, Default)]
pub(crate) struct Copies {
    open: Vec<Copy>,
    /// What was committed together is waited for together, nearly always.
    committed: VecDeque<Vec<Copy>>,
    /// Groups that each lane has committed.
    groups: [u32; LANES],
}

impl Copies {
    pub(super) fn clear(&mut self) {
        self.open.clear();
        self.committed.clear();
        self.groups = [0; LANES];
    }

    fn commit(&mut self, lanes: u32) {
        let mut ready = std::mem::replace(&mut self.open, Vec::with_capacity(LANES));
        self.open.extend(ready.extract_if(.., |copy| lanes >> copy.lane & 1 == 0));
        for copy in &mut ready {
            copy.group = self.groups[usize::from(copy.lane)];
        }
        if !ready.is_empty() {
            self.committed.push_back(ready);
        }
        for lane in lanes_of(lanes) {
            self.groups[lane] += 1;
        }
    }

    /// Delivers the copies of `lanes` in all but their newest `keep` groups.
    fn wait(&mut self, lanes: u32, keep: u32, shared: &mut Shared, warp: usize) {
        let groups = &self.groups;
        self.committed.retain_mut(|copies| {
            copies.retain(|copy| {
                let lane = usize::from(copy.lane);
                let due = lanes >> lane & 1 == 1 && copy.group < groups[lane].saturating_sub(keep);
                if due {
                    copy.deliver(shared, warp);
                }
                !due
            });
            !copies.is_empty()
        });
    }
}

impl Copy {
    fn deliver(&self, shared: &mut Shared, warp: usize) {
        let (to, bytes) = (self.to as usize, &self.bytes);
        match self.size {
            16 => shared.deliver(to, bytes, warp),
            8 => shared.deliver(to, &bytes.as_chunks::<8>().0[0], warp),
            _ => shared.deliver(to, &bytes.as_chunks::<4>().0[0], warp),
        }
    }
}

impl Block<'_> {
    pub(super) fn copy_async(
        &mut self,
        w: usize,
        position: u32,
        copy: &CopyAsync,
        mask: u32,
    ) -> Result<(), Box<Fault>> {
        let to = self.warps[w].addresses(copy.to);
        let from = self.warps[w].addresses(copy.from);
        let mut sources = [0; LANES];
        let mut n = 0;
        for lane in lanes_of(mask) {
            let result = self.copy_lane(w, copy, lane, to[lane], from[lane]);
            match result {
                Ok(0) => {}
                Ok(read) => {
                    self.counters.stats.global_loaded += u64::from(read);
                    sources[n] = from[lane];
                    n += 1;
                }
                Err(problem) => return Err(self.fault(w, position, lane, *problem)),
            }
            self.counters.stats.shared_stored += u64::from(copy.size);
        }
        if self.env.traffic() && n > 0 {
            self.counters.global_access(&sources[..n], u64::from(copy.size));
        }
        Ok(())
    }

    /// Issues one lane's copy; returns the bytes it reads.
    fn copy_lane(
        &mut self,
        w: usize,
        copy: &CopyAsync,
        lane: usize,
        to: u64,
        from: u64,
    ) -> Result<u32, Box<Problem>> {
        let warp = &self.warps[w];
        let to = if copy.to.wide && to >> 32 == windows::SHARED >> 32 { to - windows::SHARED } else { to };
        let mut read = match copy.read {
            Some(register) => warp.registers.words[register as usize][lane],
            None => copy.size,
        };
        if let Some((predicate, negated)) = copy.ignore
            && (warp.registers.predicates[predicate as usize] >> lane & 1 == 1) != negated
        {
            read = 0;
        }
        if read > copy.size {
            return Err(Problem::new(
                crate::fault::FaultKind::IllegalInstruction,
                format!("cp.async of {} bytes asked to read {read}", copy.size),
            ));
        }
        if from & u64::from(copy.size - 1) != 0 {
            return Err(misaligned(from, copy.size));
        }
        let bytes = match (copy.size, read == copy.size) {
            (16, true) => self.fetch::<16>(w, from)?,
            (8, true) => self.fetch::<8>(w, from)?,
            (4, true) => self.fetch::<4>(w, from)?,
            _ => self.fetch_part(w, from, read)?,
        };
        match copy.size {
            16 => self.shared.expect::<16>(to, w)?,
            8 => self.shared.expect::<8>(to, w)?,
            _ => self.shared.expect::<4>(to, w)?,
        }
        self.warps[w].copies.open.push(Copy {
            lane: lane as u8,
            size: copy.size as u8,
            group: 0,
            to: to as u32,
            bytes,
        });
        Ok(read)
    }

    /// A whole source.
    #[inline(always)]
    fn fetch<const N: usize>(&mut self, w: usize, from: u64) -> Result<[u8; 16], Box<Problem>> {
        let allocation = self.env.global.find(from, N as u32, &mut self.warps[w].hint)?;
        self.env.global.check_read(allocation, from, N as u32)?;
        self.note_global::<N>(w, from - allocation.base, None)?;
        let mut bytes = [0; 16];
        bytes[..N].copy_from_slice(&allocation.bytes::<N>(from - allocation.base));
        Ok(bytes)
    }

    /// The first `read` bytes of a source, which need not be readable beyond them: whole words, then single bytes.
    fn fetch_part(&mut self, w: usize, from: u64, read: u32) -> Result<[u8; 16], Box<Problem>> {
        let mut bytes = [0; 16];
        let mut at = 0;
        while at < read {
            let address = from + u64::from(at);
            let step = if read - at >= 4 { 4 } else { 1 };
            let part = if step == 4 { self.fetch::<4>(w, address)? } else { self.fetch::<1>(w, address)? };
            bytes[at as usize..][..step].copy_from_slice(&part[..step]);
            at += step as u32;
        }
        Ok(bytes)
    }

    pub(super) fn commit_group(&mut self, w: usize, mask: u32) {
        self.warps[w].copies.commit(mask);
    }

    pub(super) fn wait_group(&mut self, w: usize, keep: u32, mask: u32) {
        self.warps[w].copies.wait(mask, keep, &mut self.shared, w);
    }

    pub(super) fn wait_all(&mut self, w: usize, mask: u32) {
        self.warps[w].copies.commit(mask);
        self.warps[w].copies.wait(mask, 0, &mut self.shared, w);
    }
}
