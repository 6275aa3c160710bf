//! A whole text: where variables and parameters lie, then each kernel.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use super::function::lower;
use crate::module::{Kernel, Module, Parameter, PtxError, Relocation, Variable};
use crate::ptx::{Declaration, Function, Immediate, Initial, Operand, Source, Statement};

/// What kernels refer to outside themselves.
pub(super) struct Context<'a> {
    pub(super) functions: HashMap<&'a str, &'a Function<'a>>,
    /// Index of each `.global` and `.const` variable.
    pub(super) variables: HashMap<&'a str, usize>,
    shared: HashMap<&'a str, &'a Declaration<'a>>,
}

/// Decodes everything.
pub(crate) fn decode(source: &Source<'_>) -> Result<Module, PtxError> {
    let mut context =
        Context { functions: HashMap::new(), variables: HashMap::new(), shared: HashMap::new() };
    let mut placed = Vec::new();
    for declaration in &source.variables {
        if declaration.space == "shared" {
            context.shared.insert(declaration.name, declaration);
        } else if declaration.count > 0 && context.variables.insert(declaration.name, placed.len()).is_none()
        {
            placed.push(declaration);
        }
    }
    for function in &source.functions {
        // A declaration may come before or after the definition.
        if function.body.is_some() || !context.functions.contains_key(function.name) {
            context.functions.insert(function.name, function);
        }
    }
    let variables = placed.iter().map(|d| variable(&context, d)).collect::<Result<_, _>>()?;
    let files: Arc<[(u32, String)]> =
        source.files.iter().map(|&(number, path)| (number, path.to_owned())).collect();
    let entries = source.functions.iter().filter(|function| function.entry && function.body.is_some());
    let kernels = entries.map(|f| kernel(&context, f, files.clone())).collect::<Result<_, _>>()?;
    Ok(Module { kernels, variables })
}

fn variable(context: &Context<'_>, declaration: &Declaration<'_>) -> Result<Variable, PtxError> {
    let error = |message: String| Err(PtxError { line: declaration.line, message });
    let size = declaration.ty.size() as usize;
    let mut initial = Vec::new();
    let mut relocations = Vec::new();
    for value in &declaration.initial {
        match value {
            Initial::Number(number) => {
                let bits = match (*number, size) {
                    (Immediate::Integer(x) | Immediate::Double(x), _) => x,
                    (Immediate::Single(x), 4) => u64::from(x),
                    (Immediate::Single(x), _) => f64::from(f32::from_bits(x)).to_bits(),
                };
                let bits = match number {
                    Immediate::Double(x) if size == 4 => u64::from((f64::from_bits(*x) as f32).to_bits()),
                    _ => bits,
                };
                initial.extend_from_slice(&bits.to_le_bytes()[..size.min(8)]);
            }
            Initial::Address(symbol) => {
                let Some(&variable) = context.variables.get(symbol.name) else {
                    return error(format!("the address of `{}` is not known", symbol.name));
                };
                if size != 8 {
                    return error("an address does not fit an element".to_owned());
                }
                relocations.push(Relocation { at: initial.len() as u64, variable, offset: symbol.offset });
                initial.extend_from_slice(&[0; 8]);
            }
        }
    }
    if initial.len() as u64 > declaration.bytes() {
        return error(format!("`{}` has more initial values than elements", declaration.name));
    }
    Ok(Variable {
        name: declaration.name.to_owned(),
        size: declaration.bytes(),
        align: declaration.align,
        constant: declaration.space == "const",
        initial,
        relocations,
    })
}

fn kernel<'a>(
    context: &Context<'a>,
    function: &'a Function<'a>,
    files: Arc<[(u32, String)]>,
) -> Result<Kernel, PtxError> {
    let mut parameters = Vec::new();
    let mut places = Vec::new();
    let mut end = 0u64;
    for declaration in &function.params {
        let align = u64::from(declaration.align.max(1));
        let offset = end.next_multiple_of(align);
        end = offset + declaration.bytes();
        if end > 1 << 16 {
            return Err(PtxError {
                line: declaration.line,
                message: "more than 64 KiB of parameters".into(),
            });
        }
        places.push((declaration.name, offset));
        parameters.push(Parameter {
            name: declaration.name.to_owned(),
            offset: offset as u32,
            size: declaration.bytes() as u32,
            align: declaration.align,
        });
    }
    let layout = shared_layout(context, function)?;
    let lowered = lower(context, function, layout.offsets, &places)?;
    Ok(Kernel {
        name: function.name.to_owned(),
        parameters,
        parameter_bytes: end as u32,
        static_shared: layout.bytes as u32,
        local_bytes: lowered.local_bytes as u32,
        max_threads: function.max_threads,
        required_threads: function.required_threads,
        min_blocks_per_sm: function.min_blocks_per_sm,
        dynamic_offset: layout.dynamic_offset as u32,
        program: lowered.program,
        files,
    })
}

struct SharedLayout<'a> {
    offsets: HashMap<&'a str, u64>,
    bytes: u64,
    /// Where dynamic shared memory starts.
    dynamic_offset: u64,
}

/// Places the shared variables that a kernel and what it calls use: its own in order, then the dynamic ones, all
/// at one address.
fn shared_layout<'a>(context: &Context<'a>, kernel: &'a Function<'a>) -> Result<SharedLayout<'a>, PtxError> {
    let mut used: Vec<&Declaration<'a>> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut functions = vec![kernel];
    let mut visited = BTreeSet::from([kernel.name]);
    while let Some(function) = functions.pop() {
        for statement in function.body.iter().flatten() {
            match statement {
                Statement::Declare(declaration)
                    if declaration.space == "shared" && seen.insert(declaration.name) =>
                {
                    used.push(declaration);
                }
                Statement::Instruction(instruction) => {
                    for_names(&instruction.operands, &mut |name| {
                        if let Some(&declaration) = context.shared.get(name)
                            && seen.insert(name)
                        {
                            used.push(declaration);
                        }
                        if let Some(&callee) = context.functions.get(name)
                            && visited.insert(name)
                        {
                            functions.push(callee);
                        }
                    });
                }
                _ => {}
            }
        }
    }
    let (sized, dynamic): (Vec<_>, Vec<_>) = used.into_iter().partition(|declaration| declaration.count > 0);
    let mut layout = SharedLayout { offsets: HashMap::new(), bytes: 0, dynamic_offset: 0 };
    for declaration in sized {
        let offset = layout.bytes.next_multiple_of(u64::from(declaration.align.max(1)));
        layout.bytes = offset + declaration.bytes();
        layout.offsets.insert(declaration.name, offset);
        if layout.bytes > 1 << 24 {
            return Err(PtxError {
                line: declaration.line,
                message: "more than 16 MiB of shared memory".into(),
            });
        }
    }
    let align = dynamic.iter().map(|declaration| declaration.align).max().unwrap_or(1).max(16);
    layout.dynamic_offset = layout.bytes.next_multiple_of(u64::from(align));
    for declaration in dynamic {
        layout.offsets.insert(declaration.name, layout.dynamic_offset);
    }
    Ok(layout)
}

fn for_names<'a>(operands: &[Operand<'a>], f: &mut impl FnMut(&'a str)) {
    for operand in operands {
        match operand {
            Operand::Name(symbol) | Operand::Memory(symbol) => f(symbol.name),
            Operand::Vector(operands) | Operand::List(operands) => for_names(operands, f),
            _ => {}
        }
    }
}
