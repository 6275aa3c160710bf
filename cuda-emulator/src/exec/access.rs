//! Loads, stores and atomic operations, lane by lane.

use super::block::Block;
use super::registers::{LANES, blend, each};
use super::shared::Kind;
use super::warp::Warp;
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
#[inline(always)]
fn extend(value: u64, size: u32, signed: bool) -> u64 {
    if !signed {
        return value;
    }
    let shift = 64 - 8 * size;
    ((value << shift) as i64 >> shift) as u64
}

/// Calls a function whose parameter is the number of bytes that a lane's access has.
macro_rules! with_bytes {
    ($bytes:expr, $function:ident($($argument:expr),*)) => {
        match $bytes {
            1 => self::$function::<1>($($argument),*),
            2 => self::$function::<2>($($argument),*),
            4 => self::$function::<4>($($argument),*),
            8 => self::$function::<8>($($argument),*),
            16 => self::$function::<16>($($argument),*),
            _ => self::$function::<32>($($argument),*),
        }
    };
}

/// The bytes of all lanes.
type Raw<const N: usize> = [[u8; N]; LANES];

/// What lanes loaded, to its registers.
#[inline(always)]
fn put<const N: usize>(warp: &mut Warp, access: &Access, mask: u32, raw: &Raw<N>) {
    match access.size {
        1 => put_elements::<N, 1>(warp, access, mask, raw),
        2 => put_elements::<N, 2>(warp, access, mask, raw),
        4 => put_elements::<N, 4>(warp, access, mask, raw),
        _ => put_elements::<N, 8>(warp, access, mask, raw),
    }
}

#[inline(always)]
fn put_elements<const N: usize, const SIZE: usize>(
    warp: &mut Warp,
    access: &Access,
    mask: u32,
    raw: &Raw<N>,
) {
    for (i, &(class, index)) in access.registers.iter().enumerate() {
        let mut values = [0u64; LANES];
        for (value, bytes) in values.iter_mut().zip(raw) {
            let mut wide = [0; 8];
            if let Some(element) = bytes.as_chunks::<SIZE>().0.get(i) {
                wide[..SIZE].copy_from_slice(element);
            }
            *value = extend(u64::from_le_bytes(wide), SIZE as u32, access.signed);
        }
        let index = index as usize;
        match class {
            Class::Double => blend(&mut warp.registers.doubles[index], &values, mask),
            Class::Half => {
                blend(&mut warp.registers.words[index], &each(&values, |x| x as u32 & 0xffff), mask);
            }
            _ => blend(&mut warp.registers.words[index], &each(&values, |x| x as u32), mask),
        }
    }
}

/// What lanes store, from its registers.
#[inline(always)]
fn take<const N: usize>(warp: &Warp, access: &Access, raw: &mut Raw<N>) {
    match access.size {
        1 => take_elements::<N, 1>(warp, access, raw),
        2 => take_elements::<N, 2>(warp, access, raw),
        4 => take_elements::<N, 4>(warp, access, raw),
        _ => take_elements::<N, 8>(warp, access, raw),
    }
}

#[inline(always)]
fn take_elements<const N: usize, const SIZE: usize>(warp: &Warp, access: &Access, raw: &mut Raw<N>) {
    for (i, &(class, index)) in access.registers.iter().enumerate() {
        let values = match class {
            Class::Double => warp.registers.doubles[index as usize],
            _ => each(&warp.registers.words[index as usize], u64::from),
        };
        for (value, bytes) in values.iter().zip(raw.iter_mut()) {
            if let Some(element) = bytes.as_chunks_mut::<SIZE>().0.get_mut(i) {
                element.copy_from_slice(&value.to_le_bytes()[..SIZE]);
            }
        }
    }
}

/// The lanes of `mask` whose address leads to the same space as that of the first, which is `space`.
fn together(named: Space, space: Space, addresses: &[u64; LANES], mask: u32) -> u32 {
    if named != Space::Generic {
        return mask;
    }
    let same = lanes_of(mask).filter(|&lane| resolve(named, addresses[lane]).0 == space);
    same.fold(0, |lanes, lane| lanes | 1 << lane)
}

/// Loads of `N` bytes a lane.
fn load<const N: usize>(
    block: &mut Block<'_>,
    w: usize,
    access: &Access,
    addresses: &[u64; LANES],
    mask: u32,
) -> Result<(), (usize, Box<Problem>)> {
    let mut raw = [[0; N]; LANES];
    let mut rest = mask;
    while rest != 0 {
        let (space, _) = resolve(access.space, addresses[rest.trailing_zeros() as usize]);
        let lanes = together(access.space, space, addresses, rest);
        for lane in lanes_of(lanes) {
            let (_, address) = resolve(access.space, addresses[lane]);
            let loaded = match space {
                Space::Shared => {
                    let kind = if access.strong { Kind::StrongRead } else { Kind::Read };
                    block.shared.read(address, w, kind)
                }
                Space::Local => block.load_local(w, lane, address),
                Space::Param => block.load_param(address),
                _ => block.load_global(w, address, access),
            };
            raw[lane] = loaded.map_err(|problem| (lane, problem))?;
        }
        rest &= !lanes;
    }
    put(&mut block.warps[w], access, mask, &raw);
    Ok(())
}

/// Stores of `N` bytes a lane.
fn store<const N: usize>(
    block: &mut Block<'_>,
    w: usize,
    access: &Access,
    addresses: &[u64; LANES],
    mask: u32,
) -> Result<(), (usize, Box<Problem>)> {
    let mut raw = [[0; N]; LANES];
    take(&block.warps[w], access, &mut raw);
    let mut rest = mask;
    while rest != 0 {
        let (space, _) = resolve(access.space, addresses[rest.trailing_zeros() as usize]);
        let lanes = together(access.space, space, addresses, rest);
        for lane in lanes_of(lanes) {
            let (_, address) = resolve(access.space, addresses[lane]);
            let stored = match space {
                Space::Shared => {
                    let kind = if access.strong { Kind::StrongWrite } else { Kind::Write };
                    block.shared.write(address, &raw[lane], w, kind)
                }
                Space::Local => block.store_local(w, lane, address, &raw[lane]),
                Space::Constant => Err(read_only("constant memory", address)),
                Space::Param => Err(read_only("the parameters", address)),
                _ => block.store_global(w, address, &raw[lane], access),
            };
            stored.map_err(|problem| (lane, problem))?;
        }
        rest &= !lanes;
    }
    Ok(())
}

/// An atomic operation on shared memory; returns the old value.
fn update_shared<const N: usize>(
    block: &mut Block<'_>,
    w: usize,
    address: u64,
    update: &dyn Fn(u64) -> u64,
) -> Result<u64, Box<Problem>> {
    let mut wide = [0; 8];
    let n = N.min(8);
    wide[..n].copy_from_slice(&block.shared.read::<N>(address, w, Kind::StrongRead)?[..n]);
    let old = u64::from_le_bytes(wide);
    let mut new = [0; N];
    new[..n].copy_from_slice(&update(old).to_le_bytes()[..n]);
    block.shared.write(address, &new, w, Kind::StrongWrite)?;
    Ok(old)
}

impl Block<'_> {
    pub(super) fn load(&mut self, w: usize, at: u32, access: &Access, mask: u32) -> Result<(), Box<Fault>> {
        if mask == 0 {
            return Ok(());
        }
        let addresses = self.warps[w].addresses(access.address);
        let bytes = access.size * access.registers.len() as u32;
        with_bytes!(bytes, load(self, w, access, &addresses, mask))
            .map_err(|(lane, problem)| self.fault(w, at, lane, *problem))?;
        self.count(access.space, &addresses, mask, bytes, true);
        Ok(())
    }

    pub(super) fn store(&mut self, w: usize, at: u32, access: &Access, mask: u32) -> Result<(), Box<Fault>> {
        if mask == 0 {
            return Ok(());
        }
        if access.releases {
            self.release();
        }
        let addresses = self.warps[w].addresses(access.address);
        let bytes = access.size * access.registers.len() as u32;
        with_bytes!(bytes, store(self, w, access, &addresses, mask))
            .map_err(|(lane, problem)| self.fault(w, at, lane, *problem))?;
        self.count(access.space, &addresses, mask, bytes, false);
        Ok(())
    }

    #[inline(always)]
    fn load_global<const N: usize>(
        &mut self,
        w: usize,
        address: u64,
        access: &Access,
    ) -> Result<[u8; N], Box<Problem>> {
        let allocation = self.env.global.find(address, N as u32, &mut self.warps[w].hint)?;
        self.env.global.check_read(allocation, address, N as u32)?;
        let offset = address - allocation.base;
        if !access.strong {
            self.note_global::<N>(w, offset, None)?;
            return Ok(allocation.bytes(offset));
        }
        self.acquired = true;
        let mut bytes = [0; N];
        for (element, at) in
            bytes.chunks_mut(access.size as usize).zip((offset..).step_by(access.size as usize))
        {
            let value = allocation.load_strong(at, access.size).to_le_bytes();
            element.copy_from_slice(&value[..element.len()]);
        }
        Ok(bytes)
    }

    #[inline(always)]
    fn store_global<const N: usize>(
        &mut self,
        w: usize,
        address: u64,
        bytes: &[u8; N],
        access: &Access,
    ) -> Result<(), Box<Problem>> {
        let allocation = self.env.global.find(address, N as u32, &mut self.warps[w].hint)?;
        if allocation.read_only {
            return Err(read_only("constant memory", address));
        }
        let offset = address - allocation.base;
        if !access.strong {
            self.note_global(w, offset, Some((allocation, bytes)))?;
            allocation.set_bytes(offset, bytes);
            return Ok(());
        }
        for (element, at) in bytes.chunks(access.size as usize).zip((offset..).step_by(access.size as usize))
        {
            let mut wide = [0; 8];
            wide[..element.len()].copy_from_slice(element);
            allocation.store_strong(at, access.size, u64::from_le_bytes(wide));
        }
        Ok(())
    }

    fn load_local<const N: usize>(
        &mut self,
        w: usize,
        lane: usize,
        address: u64,
    ) -> Result<[u8; N], Box<Problem>> {
        let start = local_start(self.env.kernel.local_bytes, address, N as u32)? + lane * local_stride(self);
        let warp = &self.warps[w];
        if self.env.options.checks.uninitialised && warp.local_written[start..start + N].contains(&false) {
            let detail = format!("{N} bytes at offset {address} of local memory were never written");
            return Err(Problem::new(FaultKind::Uninitialised, detail));
        }
        Ok(std::array::from_fn(|i| warp.local[start + i]))
    }

    fn store_local<const N: usize>(
        &mut self,
        w: usize,
        lane: usize,
        address: u64,
        bytes: &[u8; N],
    ) -> Result<(), Box<Problem>> {
        let start = local_start(self.env.kernel.local_bytes, address, N as u32)? + lane * local_stride(self);
        let warp = &mut self.warps[w];
        warp.local[start..start + N].copy_from_slice(bytes);
        warp.local_written[start..start + N].fill(true);
        Ok(())
    }

    fn load_param<const N: usize>(&self, address: u64) -> Result<[u8; N], Box<Problem>> {
        let params = self.env.config.params;
        let start = usize::try_from(address).unwrap_or(usize::MAX);
        params.get(start..).and_then(|bytes| bytes.first_chunk()).copied().ok_or_else(|| {
            let detail = format!("{N} bytes at offset {address} of {} of parameters", params.len());
            Problem::new(FaultKind::OutOfBounds, detail)
        })
    }

    pub(super) fn atomic(&mut self, w: usize, at: u32, atomic: &Atomic, mask: u32) -> Result<(), Box<Fault>> {
        if atomic.releases && mask != 0 {
            self.release();
        }
        self.acquired |= atomic.result.is_some() && mask != 0;
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
                let new = |old| (atomic.update)(old, operand, second);
                with_bytes!(size, update_shared(self, w, address, &new))?
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
        let mut used = [0; LANES];
        let mut n = 0;
        for lane in lanes_of(mask) {
            used[n] = addresses[lane];
            n += 1;
        }
        if space == Space::Global {
            self.counters.global_access(&used[..n], u64::from(bytes));
        } else {
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
