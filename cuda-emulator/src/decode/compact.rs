//! Gives registers that are never live together one place.
//!
//! The compiler numbers registers as if there were no end of them, and a warp's files would not fit a cache. Where
//! a register is live is found on the graph of instructions, per thread, as the compiler's own allocator does it:
//! lanes write only what they execute, so it does not matter that they part and meet. A write under a guard does
//! not end the life of the value before it. Places are given out by linear scan over the hull of each life.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::operands::file;
use super::program::{Instruction, Op, Program, Uses};
use crate::exec::registers::{CARRY, Class, SINK};

/// The classes of an arithmetic step's results and sources.
pub(super) type Signature = Option<(&'static [Class], &'static [Class])>;

/// Instructions that run one after another.
struct Run {
    start: usize,
    end: usize,
    next: Vec<usize>,
}

/// Renumbers the registers of a program. `signatures` and `moves` have an entry an instruction; `names` has those of
/// the text's registers by file and index.
pub(super) fn compact(
    program: &mut Program,
    signatures: &[Signature],
    moves: &[bool],
    names: &HashMap<(usize, u32), String>,
) {
    let counts = [program.words, program.doubles, program.predicates];
    let (lives, mut entry) = lives(program, signatures, counts);
    entry.retain(|register| names.contains_key(register));
    track(program, signatures, moves, &entry);
    program.tracked = entry.iter().map(|register| names[register].clone()).collect();
    let mut places = Vec::new();
    let mut used = [0; 3];
    for (which, &count) in counts.iter().enumerate() {
        let reserved = if which == file(Class::Predicate) { CARRY + 1 } else { SINK + 1 };
        let mut pinned = vec![false; count];
        pinned[..reserved as usize].fill(true);
        for constant in program.constants.iter().filter(|constant| file(constant.class) == which) {
            pinned[constant.index as usize] = true;
        }
        for &(_, index) in entry.iter().filter(|(file, _)| *file == which) {
            pinned[index as usize] = true;
        }
        let (place, total) = assign(&lives[which], &pinned);
        places.push(place);
        used[which] = total;
    }
    for (at, instruction) in program.instructions.iter_mut().enumerate() {
        visit(instruction, signatures[at], &mut |class, index, _| {
            *index = places[file(class)][*index as usize]
        });
    }
    for constant in &mut program.constants {
        constant.index = places[file(constant.class)][constant.index as usize];
    }
    [program.words, program.doubles, program.predicates] = used;
}

/// Notes at each instruction which of `registers`, given by file and index, it reads and writes.
fn track(program: &mut Program, signatures: &[Signature], moves: &[bool], registers: &[(usize, u32)]) {
    if registers.is_empty() {
        return;
    }
    let numbers: HashMap<(usize, u32), u32> = registers.iter().copied().zip(0..).collect();
    for (at, instruction) in program.instructions.iter_mut().enumerate() {
        let mut uses = Uses::default();
        let guard = instruction.guard.map(|guard| (file(Class::Predicate), guard.predicate));
        uses.guard = guard.and_then(|register| numbers.get(&register).copied());
        let mut first = guard.is_some();
        visit(instruction, signatures[at], &mut |class, index, write| {
            // The guard comes first.
            let is_guard = std::mem::take(&mut first);
            match numbers.get(&(file(class), *index)) {
                Some(&number) if write => uses.writes.push(number),
                Some(&number) if !is_guard && !moves[at] => uses.reads.push(number),
                _ => {}
            }
        });
        if uses.guard.is_some() || !uses.reads.is_empty() || !uses.writes.is_empty() {
            instruction.uses = Some(Box::new(uses));
        }
    }
}

/// Calls `f(class, index, written)` for each register of an instruction.
fn visit(instruction: &mut Instruction, signature: Signature, f: &mut dyn FnMut(Class, &mut u32, bool)) {
    if let Some(guard) = &mut instruction.guard {
        f(Class::Predicate, &mut guard.predicate, false);
    }
    if let (Op::Alu { operands, .. }, Some((results, sources))) = (&mut instruction.op, signature) {
        let (to, from) = operands.split_at_mut(results.len());
        for (index, &class) in from.iter_mut().zip(sources) {
            f(class, index, false);
        }
        for (index, &class) in to.iter_mut().zip(results) {
            f(class, index, true);
        }
    } else {
        instruction.op.registers(f);
    }
}

/// First and last position at which each register is live or named, in each file.
type Lives = [Vec<Option<(usize, usize)>>; 3];

/// Lives, and the registers (file and index) that are live at the start: some path may read them first.
fn lives(program: &mut Program, signatures: &[Signature], counts: [usize; 3]) -> (Lives, Vec<(usize, u32)>) {
    let runs = runs(program);
    let total: usize = counts.iter().sum();
    let offset = [0, counts[0], counts[0] + counts[1]];
    let words = total.div_ceil(64);
    // Per run: registers read before they are surely written, and those surely written.
    let mut needed = vec![vec![0u64; words]; runs.len()];
    let mut written = vec![vec![0u64; words]; runs.len()];
    let mut lives = counts.map(|count| vec![None; count]);
    for (r, run) in runs.iter().enumerate() {
        for (at, &signature) in signatures.iter().enumerate().take(run.end).skip(run.start) {
            let instruction = &mut program.instructions[at];
            let certain = instruction.guard.is_none();
            let mut kills = Vec::new();
            visit(instruction, signature, &mut |class, index, write| {
                extend(&mut lives[file(class)][*index as usize], at);
                let bit = offset[file(class)] + *index as usize;
                if write && certain {
                    kills.push(bit);
                } else if written[r][bit / 64] >> (bit % 64) & 1 == 0 {
                    // A guarded write leaves the old value in the other lanes: it needs it.
                    needed[r][bit / 64] |= 1 << (bit % 64);
                }
            });
            for bit in kills {
                written[r][bit / 64] |= 1 << (bit % 64);
            }
        }
    }
    // Backwards to the fixed point: live at the start is what is needed, or live at the end and not written.
    let mut live_in = needed;
    let mut live_out = vec![vec![0u64; words]; runs.len()];
    let mut changed = true;
    while changed {
        changed = false;
        for (r, run) in runs.iter().enumerate().rev() {
            for &next in &run.next {
                for word in 0..words {
                    live_out[r][word] |= live_in[next][word];
                }
            }
            for word in 0..words {
                let through = live_in[r][word] | live_out[r][word] & !written[r][word];
                changed |= through != live_in[r][word];
                live_in[r][word] = through;
            }
        }
    }
    let members = |set: &[u64]| -> Vec<(usize, usize)> {
        let mut members = Vec::new();
        for (word, &bits) in set.iter().enumerate() {
            let mut rest = bits;
            while rest != 0 {
                let bit = word * 64 + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                let which = (0..3).rev().find(|&which| bit >= offset[which]).unwrap_or(0);
                members.push((which, bit - offset[which]));
            }
        }
        members
    };
    for (r, run) in runs.iter().enumerate() {
        for (set, at) in [(&live_in[r], run.start), (&live_out[r], run.end - 1)] {
            for (which, index) in members(set) {
                extend(&mut lives[which][index], at);
            }
        }
    }
    let entry = live_in.first().map(|set| members(set)).unwrap_or_default();
    (lives, entry.into_iter().map(|(which, index)| (which, index as u32)).collect())
}

fn extend(life: &mut Option<(usize, usize)>, at: usize) {
    *life = Some(match *life {
        None => (at, at),
        Some((first, last)) => (first.min(at), last.max(at)),
    });
}

/// The runs between labels and jumps, each with the runs that may follow.
fn runs(program: &Program) -> Vec<Run> {
    let instructions = &program.instructions;
    let n = instructions.len();
    let mut starts = vec![false; n + 1];
    starts[0] = true;
    for (at, instruction) in instructions.iter().enumerate() {
        match &instruction.op {
            Op::Branch(target) => {
                starts[*target as usize] = true;
                starts[at + 1] = true;
            }
            Op::BranchTable(_, targets) => {
                targets.iter().for_each(|&target| starts[target as usize] = true);
                starts[at + 1] = true;
            }
            Op::Exit => starts[at + 1] = true,
            _ => {}
        }
    }
    let mut run_of = vec![0; n + 1];
    let mut runs: Vec<Run> = Vec::new();
    for at in 0..n {
        if starts[at] {
            runs.push(Run { start: at, end: at, next: Vec::new() });
        }
        run_of[at] = runs.len() - 1;
        if let Some(run) = runs.last_mut() {
            run.end = at + 1;
        }
    }
    for run in &mut runs {
        let last = &instructions[run.end - 1];
        let falls = match &last.op {
            Op::Branch(target) => {
                run.next.push(run_of[*target as usize]);
                last.guard.is_some()
            }
            Op::BranchTable(_, targets) => {
                run.next.extend(targets.iter().map(|&target| run_of[target as usize]));
                last.guard.is_some()
            }
            Op::Exit => last.guard.is_some(),
            _ => true,
        };
        if falls && run.end < n {
            run.next.push(run_of[run.end]);
        }
    }
    runs
}

/// A place for each register, and how many there are. Pinned ones come first and share with none.
fn assign(lives: &[Option<(usize, usize)>], pinned: &[bool]) -> (Vec<u32>, usize) {
    let mut places = vec![SINK; lives.len()];
    let mut total = 0;
    for (index, _) in pinned.iter().enumerate().filter(|(_, pinned)| **pinned) {
        places[index] = total;
        total += 1;
    }
    let mut order: Vec<(usize, usize, usize)> = lives
        .iter()
        .enumerate()
        .filter(|(index, _)| !pinned[*index])
        .filter_map(|(index, life)| life.map(|(first, last)| (first, last, index)))
        .collect();
    order.sort_unstable();
    let mut busy: BinaryHeap<Reverse<(usize, u32)>> = BinaryHeap::new();
    let mut free: Vec<u32> = Vec::new();
    for (first, last, index) in order {
        while let Some(&Reverse((end, place))) = busy.peek() {
            if end >= first {
                break;
            }
            busy.pop();
            free.push(place);
        }
        let place = free.pop().unwrap_or_else(|| {
            total += 1;
            total - 1
        });
        places[index] = place;
        busy.push(Reverse((last, place)));
    }
    (places, total as usize)
}
