//! MLX's quantized tensors: their codes, scales and biases, and their entries in `config.json`.

use bytemuck::AnyBitPattern;
use halfbyte_cpu_kernels::{self as kernels, Parameters, Weights};
use safetensors::Dtype;

use super::Error;
use super::files::Entry;
use super::json::Object;
use crate::weight_types::{WeightType, distinct};
use halfbyte_gguf::{self as gguf, TensorInfo, TensorType, quote};

/// Bits and group sizes: one pair for all tensors, and others for those that differ.
#[derive(Debug)]
pub(super) struct Quantization {
    object: Object,
    all: Affine,
}

/// How a tensor is quantized.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Affine {
    pub(super) bits: usize,
    pub(super) group: usize,
    /// The type that the tensor shows.
    pub(super) ty: TensorType,
}

impl Affine {
    fn read(object: &Object, default: Option<Self>) -> Result<Self, Error> {
        if object.get("mode").is_some() && object.opt_str("mode")? != Some("affine") {
            return Err(object.unsupported("mode", "affine"));
        }
        let number = |field: &str, default: Option<usize>| match object.opt_u32(field)? {
            Some(n) => Ok(n as usize),
            None => default.ok_or_else(|| object.wrong(field, "a whole number")),
        };
        let bits = number("bits", default.map(|d| d.bits))?;
        let group = number("group_size", default.map(|d| d.group))?;
        if !affine_bits().contains(&bits) {
            return Err(object.unsupported("bits", list(&affine_bits())));
        }
        match WeightType::of_affine(bits, group) {
            Some(entry) => Ok(Self { bits, group, ty: entry.tensor_type() }),
            None => {
                let all = WeightType::all().iter().filter_map(WeightType::affine);
                let groups = distinct(all.filter(|of| of.0 == bits).map(|of| of.1));
                Err(object.unsupported("group_size", list(&groups)))
            }
        }
    }
}

/// The bits of codes that there are types for.
pub(super) fn affine_bits() -> Vec<usize> {
    distinct(WeightType::all().iter().filter_map(WeightType::affine).map(|(bits, _)| bits))
}

/// The numbers for a message.
fn list(numbers: &[usize]) -> String {
    numbers.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

impl Quantization {
    /// Reads `config`; `None` for a model that is not quantized.
    ///
    /// # Errors
    /// The model is quantized in another way than MLX's affine one.
    pub(super) fn of(config: &Object) -> Result<Option<Self>, Error> {
        let supported = "MLX's affine quantization (an object `quantization` with group_size and bits)";
        // MLX writes the same object under both names; other programs use the longer one.
        let object = match (config.opt_object("quantization")?, config.opt_object("quantization_config")?) {
            (Some(object), _) => object,
            (None, Some(object)) if object.get("quant_method").is_none() && object.get("bits").is_some() => {
                object
            }
            (None, Some(object)) => return Err(object.unsupported("quant_method", supported)),
            (None, None) => return Ok(None),
        };
        let all = Affine::read(&object, None)?;
        Ok(Some(Self { object, all }))
    }

    /// How the tensor of `module` (its name without `.weight`) is quantized.
    pub(super) fn of_module(&self, module: &str) -> Result<Affine, Error> {
        match self.object.get(module) {
            Some(value) if value.is_object() => {
                let object = self.object.opt_object(module)?;
                object.map_or(Ok(self.all), |object| Affine::read(&object, Some(self.all)))
            }
            _ => Ok(self.all),
        }
    }
}

/// The three parts of a tensor, which fit each other.
#[derive(Debug)]
pub(super) struct Parts<S> {
    pub(super) affine: Affine,
    pub(super) codes: S,
    pub(super) scales: S,
    pub(super) biases: S,
    /// The type of scales and biases.
    pub(super) parameter: Dtype,
}

/// Checks the parts of tensor `name` and returns its columns and rows, and how many matrices are stacked if it has three
/// dimensions.
pub(super) fn check(
    name: &str,
    affine: Affine,
    [codes, scales, biases]: [&Entry; 3],
) -> Result<Vec<usize>, Error> {
    let Affine { bits, group, .. } = affine;
    let wrong =
        |what, got: String, expected: String| Error::Affine { tensor: quote(name), what, got, expected };
    let shape = |entry: &Entry| format!("{:?}", entry.shape);
    if codes.dtype != Dtype::U32 {
        return Err(wrong("the type of its codes", format!("{:?}", codes.dtype), "U32".into()));
    }
    let (&[.., words], 2 | 3) = (&*codes.shape, codes.shape.len()) else {
        return Err(wrong("the shape of its codes", shape(codes), "two or three dimensions".into()));
    };
    let rows = &codes.shape[..codes.shape.len() - 1];
    // The tensor is in memory, so its size does not wrap; but a dimension may be 0 beside one of any size.
    let cols = words
        .checked_mul(32 / bits)
        .filter(|cols| *cols > 0 && cols.is_multiple_of(group) && !rows.contains(&0));
    let Some(cols) = cols else {
        let expected = format!("rows of whole groups of {group}, {bits} bits each, as config.json says");
        return Err(wrong("the shape of its codes", shape(codes), expected));
    };
    for (what, entry) in [("the shape of its scales", scales), ("the shape of its biases", biases)] {
        let whole = [rows, &[cols / group]].concat();
        if entry.shape != whole {
            let expected = format!("{whole:?}, one a group of {group} by config.json");
            return Err(wrong(what, shape(entry), expected));
        }
    }
    if ![Dtype::F16, Dtype::BF16, Dtype::F32].contains(&scales.dtype) {
        return Err(wrong(
            "the type of its scales",
            format!("{:?}", scales.dtype),
            "F16, BF16 or F32".into(),
        ));
    }
    if biases.dtype != scales.dtype {
        let expected = format!("that of its scales, {:?}", scales.dtype);
        return Err(wrong("the type of its biases", format!("{:?}", biases.dtype), expected));
    }
    Ok(std::iter::once(cols).chain(rows.iter().rev().copied()).collect())
}

impl<'a> Parts<&'a [u8]> {
    /// The weights of tensor `info` for kernels.
    ///
    /// # Errors
    /// [`gguf::Error::Misaligned`].
    pub(super) fn weights(self, info: &TensorInfo) -> Result<Weights<'a>, gguf::Error> {
        let parameters = |bytes| {
            Ok(match self.parameter {
                Dtype::F16 => Parameters::F16(cast(info, bytes)?),
                Dtype::BF16 => Parameters::Bf16(cast(info, bytes)?),
                _ => Parameters::F32(cast(info, bytes)?),
            })
        };
        let (scales, biases) = (parameters(self.scales)?, parameters(self.biases)?);
        let Affine { bits, group, .. } = self.affine;
        let codes = cast(info, self.codes)?;
        Ok(Weights::Affine(kernels::Affine { bits, group, codes, scales, biases }))
    }
}

/// `bytes`, whole numbers of a part of tensor `info`, as these numbers.
fn cast<'a, T: AnyBitPattern>(info: &TensorInfo, bytes: &'a [u8]) -> Result<&'a [T], gguf::Error> {
    bytemuck::try_cast_slice(bytes).map_err(|_| gguf::Error::Misaligned {
        tensor: quote(&info.name),
        expected: align_of::<T>(),
        got: bytes.as_ptr().addr() % align_of::<T>(),
    })
}
