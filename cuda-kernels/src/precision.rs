//! The precision in which a prompt's products are computed.

use crate::Error;
use std::fmt;
use std::str::FromStr;

/// The precision of a prompt's products with 4-bit and 8-bit weights. Decoding does not depend on it.
///
/// A request chooses it for all rows of its prompt, however the prompt is cut into chunks: a prompt of one row is computed
/// in int8 like one of four thousand. If the size of a chunk decided, the same prompt would give other results when it is
/// cut in another way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum PromptPrecision {
    /// bf16 activations as they are, bf16 multiplications, f32 sums.
    #[default]
    Bf16,
    /// int8 activations with a scale for every group: the dot products are exact, and only the rounding of the activations
    /// is lost. A chunk with a group that int8 can't hold is computed in [`Bf16`](Self::Bf16).
    Int8,
}

impl fmt::Display for PromptPrecision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Bf16 => "bf16",
            Self::Int8 => "int8",
        })
    }
}

impl FromStr for PromptPrecision {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        match text {
            "bf16" => Ok(Self::Bf16),
            "int8" => Ok(Self::Int8),
            _ => Err(Error::UnknownPrecision { got: text.into() }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways_and_others_are_refused_by_name() {
        for precision in [PromptPrecision::Bf16, PromptPrecision::Int8] {
            assert_eq!(precision.to_string().parse::<PromptPrecision>().unwrap(), precision);
        }
        let error = "fp8".parse::<PromptPrecision>().unwrap_err();
        assert_eq!(error.to_string(), "a prompt's precision is bf16 or int8, got \"fp8\"");
        assert_eq!(PromptPrecision::default(), PromptPrecision::Bf16);
    }
}
