//! MLX's quantized tensors: codes, scales and biases, and what `config.json` says of them.

use halfbyte_cpu_kernels::{self as kernels, Parameters, Weights};
use safetensors::Dtype;

use super::Error;
use super::files::Entry;
use super::json::Object;
use halfbyte_gguf::{TensorType, quote};

/// Bits and group, for all tensors and for those that differ.
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
}

impl Affine {
    /// The type that shows it.
    pub(super) fn tensor_type(self) -> TensorType {
        match (self.bits, self.group) {
            (4, 32) => TensorType::MLX4_G32,
            (4, 64) => TensorType::MLX4_G64,
            (4, _) => TensorType::MLX4_G128,
            (_, 32) => TensorType::MLX8_G32,
            (_, 64) => TensorType::MLX8_G64,
            _ => TensorType::MLX8_G128,
        }
    }

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
        if ![4, 8].contains(&bits) {
            return Err(object.unsupported("bits", "4, 8"));
        }
        if ![32, 64, 128].contains(&group) {
            return Err(object.unsupported("group_size", "32, 64, 128"));
        }
        Ok(Self { bits, group })
    }
}

impl Quantization {
    /// What `config` says, or `None` for a model that is not quantized.
    ///
    /// # Errors
    /// Another method than MLX's affine one.
    pub(super) fn of(config: &Object) -> Result<Option<Self>, Error> {
        let supported = "MLX's affine quantization (an object `quantization` with group_size and bits)";
        // MLX writes the same under both names; others write theirs under the longer one.
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

    /// For the module called `module` (the tensor's name without `.weight`).
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

/// Checks the parts of tensor `name` and returns its columns and rows.
pub(super) fn check(
    name: &str,
    affine: Affine,
    [codes, scales, biases]: [&Entry; 3],
) -> Result<[usize; 2], Error> {
    let Affine { bits, group } = affine;
    let wrong =
        |what, got: String, expected: String| Error::Affine { tensor: quote(name), what, got, expected };
    let shape = |entry: &Entry| format!("{:?}", entry.shape);
    if codes.dtype != Dtype::U32 {
        return Err(wrong("the type of its codes", format!("{:?}", codes.dtype), "U32".into()));
    }
    let &[rows, words] = &*codes.shape else {
        return Err(wrong("the shape of its codes", shape(codes), "two dimensions".into()));
    };
    // In memory, so far from wrapping; but a dimension may be 0 beside one of any size.
    let cols =
        words.checked_mul(32 / bits).filter(|cols| *cols > 0 && cols.is_multiple_of(group) && rows > 0);
    let Some(cols) = cols else {
        let expected = format!("rows of whole groups of {group}, {bits} bits each, as config.json says");
        return Err(wrong("the shape of its codes", shape(codes), expected));
    };
    for (what, entry) in [("the shape of its scales", scales), ("the shape of its biases", biases)] {
        if entry.shape != [rows, cols / group] {
            let expected = format!("[{rows}, {}], one a group of {group} by config.json", cols / group);
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
    Ok([cols, rows])
}

impl<'a> Parts<&'a [u8]> {
    /// For kernels; `None` if bytes are not aligned.
    pub(super) fn weights(self) -> Option<Weights<'a>> {
        let parameters = |bytes: &'a [u8]| {
            Some(match self.parameter {
                Dtype::F16 => Parameters::F16(bytemuck::try_cast_slice(bytes).ok()?),
                Dtype::BF16 => Parameters::Bf16(bytemuck::try_cast_slice(bytes).ok()?),
                _ => Parameters::F32(bytemuck::try_cast_slice(bytes).ok()?),
            })
        };
        let codes: &[u32] = bytemuck::try_cast_slice(self.codes).ok()?;
        let (scales, biases) = (parameters(self.scales)?, parameters(self.biases)?);
        let Affine { bits, group } = self.affine;
        Some(Weights::Affine(kernels::Affine { bits, group, codes, scales, biases }))
    }
}
