//! Loads, stores and atomic operations, lane by lane.

use super::block::Block;
use super::registers::LANES;
use super::shared::Kind;
use super::{Problem, lanes_of, windows};
use crate::decode::program::{Access, Atomic, Space};
use crate::exec::registers::Class;
use crate::fault::{Fault, FaultKind};

/// Where an address leads, and the address there.
#[inline]
fn resolve(space: Space, address: u64) -> (Space, u64) {
    if space != Space::Generic {
        return (space, address);
    }
    match address >> 32 {
        top if top == windows::SHARED >> 32 => (Space::Shared, address - windows::SHARED),
        top if top == windows::LOCAL >> 32 => (Space::Local, address - windows::LOCAL),
        top if top == windows::PARAM >> 32 => (Space::Param, address - windows::PARAM),
        _ => (Space::Global, address),
    }
}

/// A loaded value as its register holds it.
#[inline]
fn extend(value: u64, size: u32, signed: bool) -> u64 {
    if !signed {
        return value;
    }
    let shift = 64 - 8 * size;
    ((value << shift) as i64 >> shift) as u64
}

/// The little-endian value of up to eight bytes.
#[inline]
fn value_of(bytes: &[u8]) -> u64 {
    let mut wide = [0; 8];
    wide[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

impl Block<'_> {
    pub(super) fn load(&mut self, w: usize, at: u32, access: &Access, mask: u32) -> Result<(), Box<Fault>> {
        let addresses = self.warps[w].addresses(access.address);
        for lane in lanes_of(mask) {
            if let Err(problem) = self.load_lane(w, access, lane, addresses[lane]) {
                return Err(self.fault(w, at, lane, *problem));
            }
        }
        let bytes = access.size * access.registers.len() as u32;
        self.count(access.space, &addresses, mask, bytes, true);
        Ok(())
    }

    #[inline]
    fn load_lane(
        &mut self,
        w: usize,
        access: &Access,
        lane: usize,
        address: u64,
    ) -> Result<(), Box<Problem>> {
        let (space, address) = resolve(access.space, address);
        let size = access.size;
        let total = size * access.registers.len() as u32;
        let warp = &mut self.warps[w];
        match space {
            Space::Global | Space::Constant | Space::Generic => {
                let allocation = self.env.global.find(address, total, &mut warp.hint)?;
                self.env.global.check_read(allocation, address, total)?;
                let mut offset = address - allocation.base;
                for &register in &access.registers {
                    let value = if access.strong {
                        allocation.load_strong(offset, size)
                    } else {
                        allocation.load(offset, size)
                    };
                    warp.set(register, lane, extend(value, size, access.signed));
                    offset += u64::from(size);
                }
            }
            Space::Shared => {
                let kind = if access.strong { Kind::StrongRead } else { Kind::Read };
                let bytes = self.shared.read(address, total, w, kind)?;
                for (&register, bytes) in access.registers.iter().zip(bytes.chunks_exact(size as usize)) {
                    warp.set(register, lane, extend(value_of(bytes), size, access.signed));
                }
            }
            Space::Local => {
                let start =
                    local_start(self.env.kernel.local_bytes, address, total)? + lane * local_stride(self);
                let warp = &mut self.warps[w];
                let range = start..start + total as usize;
                if self.env.options.checks.uninitialised && warp.local_written[range.clone()].contains(&false)
                {
                    let detail =
                        format!("{total} bytes at offset {address} of local memory were never written");
                    return Err(Problem::new(FaultKind::Uninitialised, detail));
                }
                for (i, &register) in access.registers.iter().enumerate() {
                    let from = start + i * size as usize;
                    let value = value_of(&warp.local[from..from + size as usize]);
                    warp.set(register, lane, extend(value, size, access.signed));
                }
            }
            Space::Param => {
                let params = self.env.config.params;
                let start = usize::try_from(address).unwrap_or(usize::MAX);
                let Some(bytes) = params.get(start..start.saturating_add(total as usize)) else {
                    let detail =
                        format!("{total} bytes at offset {address} of {} of parameters", params.len());
                    return Err(Problem::new(FaultKind::OutOfBounds, detail));
                };
                for (&register, bytes) in access.registers.iter().zip(bytes.chunks_exact(size as usize)) {
                    warp.set(register, lane, extend(value_of(bytes), size, access.signed));
                }
            }
        }
        Ok(())
    }

    pub(super) fn store(&mut self, w: usize, at: u32, access: &Access, mask: u32) -> Result<(), Box<Fault>> {
        let addresses = self.warps[w].addresses(access.address);
        for lane in lanes_of(mask) {
            if let Err(problem) = self.store_lane(w, access, lane, addresses[lane]) {
                return Err(self.fault(w, at, lane, *problem));
            }
        }
        let bytes = access.size * access.registers.len() as u32;
        self.count(access.space, &addresses, mask, bytes, false);
        Ok(())
    }

    #[inline]
    fn store_lane(
        &mut self,
        w: usize,
        access: &Access,
        lane: usize,
        address: u64,
    ) -> Result<(), Box<Problem>> {
        let (space, address) = resolve(access.space, address);
        let size = access.size;
        let total = size * access.registers.len() as u32;
        let warp = &mut self.warps[w];
        match space {
            Space::Global | Space::Generic => {
                let allocation = self.env.global.find(address, total, &mut warp.hint)?;
                if allocation.read_only {
                    return Err(read_only("constant memory", address));
                }
                let mut offset = address - allocation.base;
                for &register in &access.registers {
                    let value = warp.get(register, lane);
                    if access.strong {
                        allocation.store_strong(offset, size, value);
                    } else {
                        allocation.store(offset, size, value);
                    }
                    offset += u64::from(size);
                }
            }
            Space::Shared => {
                let mut bytes = [0; 32];
                for (i, &register) in access.registers.iter().enumerate() {
                    let at = i * size as usize;
                    bytes[at..at + size as usize]
                        .copy_from_slice(&warp.get(register, lane).to_le_bytes()[..size as usize]);
                }
                let kind = if access.strong { Kind::StrongWrite } else { Kind::Write };
                self.shared.write(address, &bytes[..total as usize], w, kind)?;
            }
            Space::Local => {
                let start =
                    local_start(self.env.kernel.local_bytes, address, total)? + lane * local_stride(self);
                let warp = &mut self.warps[w];
                for (i, &register) in access.registers.iter().enumerate() {
                    let at = start + i * size as usize;
                    let bytes = warp.get(register, lane).to_le_bytes();
                    warp.local[at..at + size as usize].copy_from_slice(&bytes[..size as usize]);
                }
                warp.local_written[start..start + total as usize].fill(true);
            }
            Space::Constant => return Err(read_only("constant memory", address)),
            Space::Param => return Err(read_only("the parameters", address)),
        }
        Ok(())
    }

    pub(super) fn atomic(&mut self, w: usize, at: u32, atomic: &Atomic, mask: u32) -> Result<(), Box<Fault>> {
        let addresses = self.warps[w].addresses(atomic.address);
        for lane in lanes_of(mask) {
            for (i, &operand) in atomic.operands.iter().enumerate() {
                let address = addresses[lane].wrapping_add(i as u64 * u64::from(atomic.size));
                if let Err(problem) = self.atomic_lane(w, atomic, lane, address, operand) {
                    return Err(self.fault(w, at, lane, *problem));
                }
            }
        }
        let bytes = atomic.size * atomic.operands.len() as u32;
        self.count(atomic.space, &addresses, mask, bytes, true);
        self.count(atomic.space, &addresses, mask, bytes, false);
        Ok(())
    }

    fn atomic_lane(
        &mut self,
        w: usize,
        atomic: &Atomic,
        lane: usize,
        address: u64,
        operand: (Class, u32),
    ) -> Result<(), Box<Problem>> {
        let (space, address) = resolve(atomic.space, address);
        let size = atomic.size;
        let width = u64::MAX >> (64 - 8 * size);
        let warp = &mut self.warps[w];
        let operand = warp.get(operand, lane) & width;
        let second = atomic.second.map_or(0, |second| warp.get(second, lane) & width);
        let old = match space {
            Space::Global | Space::Generic => {
                let allocation = self.env.global.find(address, size, &mut warp.hint)?;
                self.env.global.check_read(allocation, address, size)?;
                if allocation.read_only {
                    return Err(read_only("constant memory", address));
                }
                allocation
                    .update(address - allocation.base, size, |old| (atomic.update)(old, operand, second))
            }
            Space::Shared => {
                let old = value_of(self.shared.read(address, size, w, Kind::StrongRead)?);
                let new = (atomic.update)(old, operand, second);
                self.shared.write(address, &new.to_le_bytes()[..size as usize], w, Kind::StrongWrite)?;
                old
            }
            _ => {
                let detail =
                    format!("atomic operation at {address:#x}, which is neither global nor shared memory");
                return Err(Problem::new(FaultKind::IllegalInstruction, detail));
            }
        };
        if let Some(result) = atomic.result {
            self.warps[w].set(result, lane, old);
        }
        Ok(())
    }

    /// Counts the traffic of a warp's access.
    fn count(&mut self, space: Space, addresses: &[u64; LANES], mask: u32, bytes: u32, load: bool) {
        if mask == 0 {
            return;
        }
        let (space, _) = resolve(space, addresses[Self::first(mask)]);
        let stats = &mut self.counters.stats;
        let total = u64::from(bytes) * u64::from(mask.count_ones());
        match (space, load) {
            (Space::Global, true) => stats.global_loaded += total,
            (Space::Global, false) => stats.global_stored += total,
            (Space::Shared, true) => stats.shared_loaded += total,
            (Space::Shared, false) => stats.shared_stored += total,
            _ => return,
        }
        if !self.env.traffic() {
            return;
        }
        if space == Space::Global {
            let mut used = [0; LANES];
            let mut n = 0;
            for lane in lanes_of(mask) {
                used[n] = addresses[lane];
                n += 1;
            }
            self.counters.global_access(&used[..n], u64::from(bytes));
        } else {
            let mut used = [0; LANES];
            let mut n = 0;
            for lane in lanes_of(mask) {
                used[n] = addresses[lane] as u32;
                n += 1;
            }
            self.counters.shared_access(&used[..n], bytes);
        }
    }
}

/// Bytes between the local memories of two lanes.
fn local_stride(block: &Block<'_>) -> usize {
    block.env.kernel.local_bytes as usize
}

fn local_start(size: u32, address: u64, bytes: u32) -> Result<usize, Box<Problem>> {
    if address >= u64::from(size) || u64::from(bytes) > u64::from(size) - address {
        let detail =
            format!("{bytes} bytes at offset {address} of local memory, of which a thread has {size}");
        return Err(Problem::new(FaultKind::OutOfBounds, detail));
    }
    if address & u64::from(bytes - 1) != 0 {
        return Err(super::global::misaligned(address, bytes));
    }
    Ok(address as usize)
}

fn read_only(what: &str, address: u64) -> Box<Problem> {
    Problem::new(FaultKind::ReadOnly, format!("a write to {what} at {address:#x}"))
}
