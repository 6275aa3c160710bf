//! What a tensor can be written as.

use std::fmt;
use std::str::FromStr;

use halfbyte_cpu_kernels::{Context, Isa, Matrix};
use halfbyte_gguf::{TensorInfo, TensorType};

use super::encoders::{Encoder, Row};
use super::{EncodeError, Error};
use crate::model;
use crate::weight_types::{WeightType, block_weights};

/// How the parameters of a group are chosen, in types where there is a choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Method {
    /// `max|w| / 7`, symmetric: [`halfbyte_q4::q4_row`].
    Max7,
    /// The extremes of the group at the ends of the range, as in other GGUF writers:
    /// [`halfbyte_q4::q4_row_max`], [`halfbyte_q4::q4_1_row`].
    Max,
    /// The best of many least-squares fits: [`quantize_q4_0_fit`](halfbyte_cpu_kernels::quantize_q4_0_fit) and
    /// [`halfbyte_q4::q4_1_row_weighted`], by which no group is worse than by [`Method::Max`], and
    /// [`halfbyte_k_quants::quantize_row_weighted`].
    Fit,
    /// The best scale there is: [`halfbyte_q4::q4_row_optimal`].
    Optimal,
    /// Rounding with error compensation, on the inputs that a text gives:
    /// [`calibrate::quantize`](crate::calibrate::quantize) makes these tensors. Those that no text has an input for are
    /// written by [`Method::Fit`].
    Gptq,
}

impl Method {
    /// Every method, the simplest first.
    pub const ALL: [Self; 5] = [Self::Max7, Self::Max, Self::Fit, Self::Optimal, Self::Gptq];

    /// The name, as the command line takes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Max7 => "max7",
            Self::Max => "max",
            Self::Fit => "fit",
            Self::Optimal => "optimal",
            Self::Gptq => "gptq",
        }
    }

    /// What it does, for help texts.
    pub const fn summary(self) -> &'static str {
        match self {
            Self::Max7 => "each group's biggest weight divided by 7",
            Self::Max => "the extremes of a group at the ends of the range, as other programs do",
            Self::Fit => "many scales tried, those with the least squared error",
            Self::Optimal => "the least squared error there is; some ten times slower",
            Self::Gptq => {
                "weights rounded so that errors cancel in the outputs that a text gives; minutes, and by far the best"
            }
        }
    }

    /// The method of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|method| method.name() == name)
    }

    /// Whether it minimises an error, in which columns can have different importance.
    pub const fn takes_importance(self) -> bool {
        matches!(self, Self::Fit | Self::Optimal | Self::Gptq)
    }

    /// The method that takes its place for types that do not have it.
    const fn simpler(self) -> Option<Self> {
        match self {
            Self::Max7 => Some(Self::Max),
            Self::Optimal | Self::Gptq => Some(Self::Fit),
            Self::Max | Self::Fit => None,
        }
    }
}

/// A type to write, with the method where there is a choice.
///
/// As text it is the type's name, and behind a colon that of the method: `q4_0:fit`.
///
/// ```
/// use halfbyte::requantize::{Encoding, Method};
///
/// let q4_0: Encoding = "q4_0".parse()?;
/// assert_eq!(q4_0.method(), Some(Method::Fit));
/// assert_eq!("q4_0:optimal".parse::<Encoding>()?.to_string(), "q4_0:optimal");
/// let error = "q4_1:optimal".parse::<Encoding>().unwrap_err();
/// assert_eq!(error.to_string(), "\"optimal\" is no method for q4_1: expected one of max, fit, gptq");
/// # Ok::<(), halfbyte::requantize::EncodingError>(())
/// ```
#[derive(Clone, Copy)]
pub struct Encoding {
    ty: TensorType,
    encoder: &'static Encoder,
    method: Option<Method>,
}

impl Encoding {
    /// Every type that can be written, each with its usual method.
    pub fn all() -> impl Iterator<Item = Self> {
        WeightType::all().iter().filter_map(Self::of)
    }

    fn of(entry: &WeightType) -> Option<Self> {
        let encoder = entry.encoder()?;
        Some(Self { ty: entry.tensor_type(), encoder, method: encoder.methods.first().copied() })
    }

    /// Weights of type `ty`, by the usual method.
    ///
    /// # Errors
    /// [`EncodingError::Type`] if nothing writes this type.
    pub fn new(ty: TensorType) -> Result<Self, EncodingError> {
        WeightType::of(ty).and_then(Self::of).ok_or_else(|| EncodingError::Type { got: ty.to_string() })
    }

    /// The same type by `method`.
    ///
    /// # Errors
    /// [`EncodingError::Method`] if the type does not have the method.
    pub fn with_method(self, method: Method) -> Result<Self, EncodingError> {
        if self.methods().contains(&method) {
            Ok(Self { method: Some(method), ..self })
        } else {
            Err(EncodingError::Method { encoding: self, got: method.name().to_owned() })
        }
    }

    /// The same type by `method` or, if the type does not have it, by the one that is closest to it: [`Method::Max`] for
    /// [`Method::Max7`], [`Method::Fit`] for the others. Types without a choice stay as they are.
    #[must_use]
    pub fn with_closest_method(self, method: Method) -> Self {
        let mut candidates = std::iter::successors(Some(method), |method| method.simpler());
        let found = candidates.find(|method| self.methods().contains(method));
        Self { method: found.or(self.method), ..self }
    }

    /// The same type by the usual method for columns of different importance.
    #[must_use]
    pub fn weighted(self) -> Self {
        let mut usual = self.methods().iter().copied();
        Self { method: usual.find(|method| method.takes_importance()).or(self.method), ..self }
    }

    /// The type that rows of `len` weights get: this one or, where they are not whole blocks of it, the one that llama.cpp
    /// takes in its place, if there is one.
    #[must_use]
    pub fn for_rows(self, len: usize) -> Self {
        if len.is_multiple_of(self.ty.block_len()) {
            return self;
        }
        let other = self.encoder.fallback.and_then(|ty| Self::new(ty).ok());
        other.map_or(self, |other| match self.method {
            Some(method) => other.with_closest_method(method),
            None => other,
        })
    }

    /// The type in the file.
    pub fn tensor_type(self) -> TensorType {
        self.ty
    }

    /// The name of the type, as the command line takes it: `q4_0`.
    pub fn type_name(self) -> String {
        self.ty.name().to_lowercase()
    }

    /// How the parameters of a group are chosen, if there is a choice.
    pub fn method(self) -> Option<Method> {
        self.method
    }

    /// The methods that this type has, the usual one first.
    pub fn methods(self) -> &'static [Method] {
        self.encoder.methods
    }

    /// llama.cpp's number for a file that is mostly of this type (`general.file_type`).
    pub fn file_type(self) -> u32 {
        self.encoder.file_type
    }

    /// Whether an error is minimised, in which columns can have different importance.
    pub(super) fn takes_importance(self) -> bool {
        self.method.is_some_and(Method::takes_importance)
    }

    /// The magnitude up to which any weight can be held.
    pub(super) fn limit(self) -> f32 {
        (self.encoder.limit)(self.method)
    }

    /// What rounds rows with error compensation, if the method does that.
    pub(crate) fn compensate(self) -> Option<super::encoders::Compensate> {
        self.encoder.compensate.filter(|_| self.method == Some(Method::Gptq))
    }

    /// Appends the row `x`, whole groups of finite weights, to `bytes`. `importance` is one number a column, for methods
    /// that take it. Returns how many groups had no importance and were quantized with equal ones. After an error
    /// nothing written means anything.
    pub(crate) fn encode(
        self,
        ctx: Context<'_>,
        x: &[f32],
        importance: Option<&[f32]>,
        bytes: &mut Vec<u8>,
    ) -> Result<usize, EncodeError> {
        (self.encoder.encode)(Row { ctx, weights: x, method: self.method, importance }, bytes)
    }

    /// Decodes rows of this type into `x`.
    pub(crate) fn decode(self, isa: Isa, bytes: &[u8], x: &mut [f32]) -> Result<(), Error> {
        let row = TensorInfo::new("row", self.ty, &[x.len()])?;
        // Words are aligned for every block; the bytes may lie anywhere.
        let mut words = vec![0_u64; bytes.len().div_ceil(8)];
        let copy = &mut bytemuck::cast_slice_mut(&mut words)[..bytes.len()];
        copy.copy_from_slice(bytes);
        let weights = block_weights(&row, copy).map_err(model::Error::from)?;
        let matrix = Matrix::new(weights, 1, x.len()).map_err(model::Error::from)?;
        Ok(matrix.decode_row(isa, 0, x).map_err(model::Error::from)?)
    }
}

impl PartialEq for Encoding {
    fn eq(&self, other: &Self) -> bool {
        (self.ty, self.method) == (other.ty, other.method)
    }
}

impl Eq for Encoding {}

impl fmt::Display for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.method {
            None => f.pad(&self.type_name()),
            Some(method) => f.pad(&format!("{}:{}", self.type_name(), method.name())),
        }
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Encoding {
    type Err = EncodingError;

    fn from_str(text: &str) -> Result<Self, EncodingError> {
        let (ty, method) = text.split_once(':').map_or((text, None), |(ty, method)| (ty, Some(method)));
        let usual = Self::all()
            .find(|encoding| encoding.type_name() == ty)
            .ok_or_else(|| EncodingError::Type { got: ty.to_owned() })?;
        let Some(name) = method else { return Ok(usual) };
        let unknown = || EncodingError::Method { encoding: usual, got: name.to_owned() };
        usual.with_method(Method::by_name(name).ok_or_else(unknown)?)
    }
}

/// Why weights can't be written in a type or by a method.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodingError {
    /// Nothing writes the type.
    #[error("{got:?} is not a type: expected one of {}", type_names())]
    Type {
        /// Its name.
        got: String,
    },
    /// The type does not have the method.
    #[error("{got:?} is no method for {}: expected {}", encoding.type_name(), method_names(encoding.methods()))]
    Method {
        /// The type, by its usual method.
        encoding: Encoding,
        /// The name of the method.
        got: String,
    },
}

/// The names of the types that can be written.
fn type_names() -> String {
    Encoding::all().map(Encoding::type_name).collect::<Vec<_>>().join(", ")
}

/// The names of `methods`, or that there are none.
fn method_names(methods: &[Method]) -> String {
    if methods.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<_> = methods.iter().map(|method| method.name()).collect();
    format!("one of {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for usual in Encoding::all() {
            assert_eq!(usual, usual.type_name().parse().unwrap());
            assert_eq!(usual, usual.to_string().parse().unwrap());
            for &method in usual.methods() {
                let encoding = usual.with_method(method).unwrap();
                assert_eq!(encoding, encoding.to_string().parse().unwrap());
                assert_eq!(encoding.compensate().is_some(), method == Method::Gptq);
            }
        }
    }

    #[test]
    fn types_without_a_method_take_the_closest() {
        let closest =
            |name: &str, method| Encoding::from_str(name).unwrap().with_closest_method(method).method();
        assert_eq!(closest("q4_1", Method::Max7), Some(Method::Max));
        assert_eq!(closest("q4_1", Method::Optimal), Some(Method::Fit));
        assert_eq!(closest("q4_1", Method::Gptq), Some(Method::Gptq));
        assert_eq!(closest("q4_0", Method::Optimal), Some(Method::Optimal));
        assert_eq!(closest("q8_0", Method::Optimal), None);
        let weighted = |name: &str| Encoding::from_str(name).unwrap().weighted().method();
        assert_eq!(
            [weighted("q4_0"), weighted("q4_1"), weighted("f16")],
            [Some(Method::Fit), Some(Method::Fit), None]
        );
    }

    #[test]
    fn rows_that_are_no_super_blocks_get_llama_cpps_types() {
        let at = |name: &str, len| Encoding::from_str(name).unwrap().for_rows(len).to_string();
        for (name, other) in [
            ("q2_k", "q4_0:fit"),
            ("q3_k", "q4_0:fit"),
            ("q4_k", "q5_0:fit"),
            ("q5_k", "q5_1:fit"),
            ("q6_k", "q8_0"),
            ("iq4_xs", "iq4_nl:fit"),
        ] {
            assert_eq!(at(name, 576), other);
            assert_eq!(at(name, 512), format!("{name}:fit"));
        }
        assert_eq!(at("q4_0:max", 33), "q4_0:max");
    }

    #[test]
    fn what_there_is_not_is_refused() {
        let error = |text: &str| Encoding::from_str(text).unwrap_err().to_string();
        assert_eq!(
            error("iq2_xs"),
            "\"iq2_xs\" is not a type: expected one of f32, f16, bf16, q8_0, q4_0, q4_1, q5_0, q5_1, q2_k, q3_k, q4_k, \
             q5_k, q6_k, iq4_nl, iq4_xs, mxfp4"
        );
        assert_eq!(error("q8_0:fit"), "\"fit\" is no method for q8_0: expected none");
        assert_eq!(
            error("q4_0:"),
            "\"\" is no method for q4_0: expected one of fit, max, max7, optimal, gptq"
        );
        assert_eq!(
            Encoding::new(TensorType::IQ2_XS).unwrap_err().to_string().split(':').next(),
            Some("\"IQ2_XS\" is not a type")
        );
    }
}
