//! The ways to quantize that are set side by side.

/// One way to make a 4-bit file.
#[derive(Debug)]
pub(super) struct Method {
    /// For `--only` and the figures' file.
    pub(super) key: &'static str,
    /// In tables.
    pub(super) label: &'static str,
    /// As `--type` has it.
    pub(super) ty: &'static str,
    pub(super) by: By,
    /// Whether columns are weighed by the imatrix.
    pub(super) imatrix: bool,
}

/// Who quantizes.
#[derive(Debug, PartialEq)]
pub(super) enum By {
    /// `halfbyte quantize --method`.
    Halfbyte(&'static str),
    /// The same, with the calibration text.
    Calibrated(&'static str),
    /// `llama_model_quantize`.
    Llama,
}

/// What all the others are compared with.
pub(super) const REFERENCE: &str = "max7";

/// In the tables' order.
pub(super) const METHODS: &[Method] = &[
    method("max7", "max/7 (`q4_row`)", "q4_0", By::Halfbyte("max7"), false),
    method("max", "max rule", "q4_0", By::Halfbyte("max"), false),
    method("fit", "fit", "q4_0", By::Halfbyte("fit"), false),
    method("optimal", "optimal", "q4_0", By::Halfbyte("optimal"), false),
    method("fit_imatrix", "fit + importance", "q4_0", By::Halfbyte("fit"), true),
    method("optimal_imatrix", "optimal + importance", "q4_0", By::Halfbyte("optimal"), true),
    method("gptq", "gptq", "q4_0", By::Calibrated("gptq"), false),
    method("gptq_imatrix", "gptq + importance", "q4_0", By::Calibrated("gptq"), true),
    method("llama", "llama.cpp", "q4_0", By::Llama, false),
    method("llama_imatrix", "llama.cpp + imatrix", "q4_0", By::Llama, true),
    method("q4_1_max", "Q4_1, max rule", "q4_1", By::Halfbyte("max"), false),
    method("q4_1_fit_imatrix", "Q4_1, fit + importance", "q4_1", By::Halfbyte("fit"), true),
    method("q4_1_gptq", "Q4_1, gptq", "q4_1", By::Calibrated("gptq"), false),
];

const fn method(key: &'static str, label: &'static str, ty: &'static str, by: By, imatrix: bool) -> Method {
    Method { key, label, ty, by, imatrix }
}

/// The label of a method by its key; the key itself for one of another version of this tool.
pub(super) fn label(key: &str) -> &str {
    METHODS.iter().find(|m| m.key == key).map_or(key, |m| m.label)
}
