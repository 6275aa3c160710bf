//! Instructions that compute a register from registers, lane by lane: what each means, next to how it is named.
//!
//! A family's `decode` matches an opcode with its modifiers and answers with an [`Alu`]: one function that runs
//! the whole warp, made by the `lanes!` macro from the lane's formula, so that the compiler can vectorise the loop.

mod bits;
mod compare;
mod convert;
mod float;
mod half;
mod integer;
mod moves;
pub(crate) mod narrow;

pub(crate) use moves::{pack, unpack};

use crate::decode::Modifiers;
use crate::exec::registers::{Class, Registers};

/// Register indices: the results, then the sources.
pub(crate) type Operands = [u32; 8];

/// What a warp does for an instruction.
pub(crate) type AluFn = fn(&mut Registers, &Operands, u32);

/// A lane-by-lane instruction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alu {
    pub(crate) run: AluFn,
    pub(crate) results: &'static [Class],
    pub(crate) sources: &'static [Class],
    /// The last result is the carry flag, which PTX does not write as an operand.
    pub(crate) carry_out: bool,
    /// The last source is the carry flag.
    pub(crate) carry_in: bool,
}

impl Alu {
    pub(crate) fn with_carry(self, carry_in: bool, carry_out: bool) -> Self {
        Self { carry_out, carry_in, ..self }
    }
}

/// `lanes!(|a: T, b: U| -> V { formula })`, or `-> (V, W)` for two results.
macro_rules! lanes {
    (|$($arg:ident: $ty:ty),+| -> ($out:ty, $second:ty) $body:block) => {{
        #[allow(clippy::needless_range_loop, reason = "one index runs through several arrays")]
        fn run(
            registers: &mut $crate::exec::registers::Registers,
            operands: &$crate::alu::Operands,
            mask: u32,
        ) {
            use $crate::exec::registers::{LANES, Lane};
            let mut slot = 1;
            $(
                slot += 1;
                let $arg = <$ty as Lane>::read(registers, operands[slot & 7]);
            )+
            let mut out = [<$out>::default(); LANES];
            let mut second = [<$second>::default(); LANES];
            for lane in 0..LANES {
                $(let $arg = $arg[lane];)+
                (out[lane], second[lane]) = $body;
            }
            <$out as Lane>::write(registers, operands[0], &out, mask);
            <$second as Lane>::write(registers, operands[1], &second, mask);
        }
        use $crate::exec::registers::Lane;
        $crate::alu::Alu {
            run,
            results: &[<$out as Lane>::CLASS, <$second as Lane>::CLASS],
            sources: &[$(<$ty as Lane>::CLASS),+],
            carry_out: false,
            carry_in: false,
        }
    }};
    (|$($arg:ident: $ty:ty),+| -> $out:ty $body:block) => {{
        #[allow(clippy::needless_range_loop, reason = "one index runs through several arrays")]
        fn run(
            registers: &mut $crate::exec::registers::Registers,
            operands: &$crate::alu::Operands,
            mask: u32,
        ) {
            use $crate::exec::registers::{LANES, Lane};
            let mut slot = 0;
            $(
                slot += 1;
                let $arg = <$ty as Lane>::read(registers, operands[slot & 7]);
            )+
            let mut out = [<$out>::default(); LANES];
            for lane in 0..LANES {
                $(let $arg = $arg[lane];)+
                out[lane] = $body;
            }
            <$out as Lane>::write(registers, operands[0], &out, mask);
        }
        use $crate::exec::registers::Lane;
        $crate::alu::Alu {
            run,
            results: &[<$out as Lane>::CLASS],
            sources: &[$(<$ty as Lane>::CLASS),+],
            carry_out: false,
            carry_in: false,
        }
    }};
}
pub(crate) use lanes;

/// The instruction that an opcode names, `None` if no family knows it. Modifiers left over are the caller's to
/// refuse.
pub(crate) fn decode(m: &mut Modifiers<'_>) -> Option<Alu> {
    match m.opcode() {
        "add" | "sub" | "mul" | "mad" | "mul24" | "mad24" | "div" | "rem" | "neg" | "abs" | "min" | "max"
        | "addc" | "subc" | "madc" | "sad" | "fma" | "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2" | "sin"
        | "cos" | "tanh" | "copysign" | "testp" => {
            half::decode(m).or_else(|| float::decode(m)).or_else(|| integer::decode(m))
        }
        "dp4a" | "dp2a" | "vabsdiff4" => integer::decode(m),
        "and" | "or" | "xor" | "not" | "cnot" | "shl" | "shr" | "shf" | "bfe" | "bfi" | "bfind" | "brev"
        | "clz" | "popc" | "prmt" | "lop3" | "szext" | "bmsk" => bits::decode(m),
        "setp" | "set" | "selp" | "slct" => compare::decode(m),
        "mov" => moves::decode(m),
        "cvt" => convert::decode(m),
        _ => None,
    }
}
