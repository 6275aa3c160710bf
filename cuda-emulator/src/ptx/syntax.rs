//! The syntax of a PTX text as plain data.

/// A PTX type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are PTX's own")]
pub(crate) enum Type {
    Pred,
    U8,
    S8,
    B8,
    U16,
    S16,
    B16,
    F16,
    BF16,
    U32,
    S32,
    B32,
    F32,
    F16x2,
    BF16x2,
    TF32,
    E4M3x2,
    E5M2x2,
    U64,
    S64,
    B64,
    F64,
    B128,
    U4,
    S4,
}

impl Type {
    /// The type of a modifier or directive without its dot.
    pub(crate) fn of(word: &str) -> Option<Self> {
        Some(match word {
            "pred" => Self::Pred,
            "u8" => Self::U8,
            "s8" => Self::S8,
            "b8" => Self::B8,
            "u16" => Self::U16,
            "s16" => Self::S16,
            "b16" => Self::B16,
            "f16" => Self::F16,
            "bf16" => Self::BF16,
            "u32" => Self::U32,
            "s32" => Self::S32,
            "b32" => Self::B32,
            "f32" => Self::F32,
            "f16x2" => Self::F16x2,
            "bf16x2" => Self::BF16x2,
            "tf32" => Self::TF32,
            "e4m3x2" => Self::E4M3x2,
            "e5m2x2" => Self::E5M2x2,
            "u64" => Self::U64,
            "s64" => Self::S64,
            "b64" => Self::B64,
            "f64" => Self::F64,
            "b128" => Self::B128,
            "u4" => Self::U4,
            "s4" => Self::S4,
            _ => return None,
        })
    }

    /// Bytes of a value in memory (a nibble counts as one).
    pub(crate) fn size(self) -> u32 {
        match self {
            Self::Pred | Self::U8 | Self::S8 | Self::B8 | Self::U4 | Self::S4 => 1,
            Self::U16 | Self::S16 | Self::B16 | Self::F16 | Self::BF16 | Self::E4M3x2 | Self::E5M2x2 => 2,
            Self::U64 | Self::S64 | Self::B64 | Self::F64 => 8,
            Self::B128 => 16,
            _ => 4,
        }
    }

    /// Whether it is a signed integer.
    pub(crate) fn signed(self) -> bool {
        matches!(self, Self::S8 | Self::S16 | Self::S32 | Self::S64 | Self::S4)
    }
}

/// A whole text.
#[derive(Debug, Default)]
pub(crate) struct Source<'a> {
    /// `.file`: number and path.
    pub(crate) files: Vec<(u32, &'a str)>,
    pub(crate) functions: Vec<Function<'a>>,
    pub(crate) variables: Vec<Declaration<'a>>,
}

/// An `.entry` or a `.func`.
#[derive(Debug)]
pub(crate) struct Function<'a> {
    pub(crate) name: &'a str,
    pub(crate) line: u32,
    pub(crate) entry: bool,
    pub(crate) results: Vec<Declaration<'a>>,
    pub(crate) params: Vec<Declaration<'a>>,
    pub(crate) max_threads: Option<[u32; 3]>,
    pub(crate) required_threads: Option<[u32; 3]>,
    pub(crate) min_blocks_per_sm: Option<u32>,
    /// `None` for a declaration without a body.
    pub(crate) body: Option<Vec<Statement<'a>>>,
}

/// A variable or a range of registers.
#[derive(Debug, Clone)]
pub(crate) struct Declaration<'a> {
    /// `reg`, `param`, `local`, `shared`, `global` or `const`.
    pub(crate) space: &'a str,
    pub(crate) name: &'a str,
    pub(crate) line: u32,
    pub(crate) ty: Type,
    /// Elements (of a vector type times an array's length); 0 for `[]`.
    pub(crate) count: u64,
    /// `%r<count>` declares `%r0`, `%r1`, ...
    pub(crate) numbered: bool,
    pub(crate) align: u32,
    pub(crate) initial: Vec<Initial<'a>>,
}

impl Declaration<'_> {
    /// Bytes of the variable.
    pub(crate) fn bytes(&self) -> u64 {
        self.count.saturating_mul(u64::from(self.ty.size()))
    }
}

/// One element of an initialiser.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Initial<'a> {
    Number(Immediate),
    Address(Symbol<'a>),
}

/// A name and a byte offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Symbol<'a> {
    pub(crate) name: &'a str,
    pub(crate) offset: i64,
}

/// A number as written.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Immediate {
    /// An integer, negative ones in two's complement.
    Integer(u64),
    /// `0f3f800000`.
    Single(u32),
    /// `0d3ff0000000000000`, or a decimal fraction.
    Double(u64),
}

/// A line of a function's body.
#[derive(Debug)]
pub(crate) enum Statement<'a> {
    Open,
    Close,
    Declare(Declaration<'a>),
    Label(&'a str),
    /// `.branchtargets`, named by the label before it.
    Targets(Vec<&'a str>),
    /// `.loc`: file number and line.
    Location(u32, u32),
    Instruction(Instruction<'a>),
}

/// An instruction as written.
#[derive(Debug)]
pub(crate) struct Instruction<'a> {
    pub(crate) line: u32,
    /// The predicate and whether it is negated.
    pub(crate) guard: Option<(&'a str, bool)>,
    /// The opcode with its modifiers.
    pub(crate) opcode: &'a str,
    pub(crate) operands: Vec<Operand<'a>>,
}

/// An operand as written.
#[derive(Debug, Clone)]
pub(crate) enum Operand<'a> {
    /// A register, a special register, a variable, a label or a function, with a byte offset if `name + n`.
    Name(Symbol<'a>),
    Immediate(Immediate),
    /// `!%p`.
    Not(&'a str),
    /// `%p|%q`; `_` for none.
    Pair(&'a str, &'a str),
    /// `{a, b, ...}`.
    Vector(Vec<Operand<'a>>),
    /// `(a, b, ...)` of a call.
    List(Vec<Operand<'a>>),
    /// `[base + offset]`.
    Memory(Symbol<'a>),
    /// `[number]`.
    Absolute(u64),
    /// `_`.
    Sink,
}
