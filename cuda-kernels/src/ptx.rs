//! The PTX shipped with this crate, one text per source file.
//!
//! `kernels/NAME.cu` compiled for the oldest architecture that has its instructions; a driver compiles the PTX for the
//! GPU at hand, so text for sm_80 serves every later one. `cargo xtask ptx` rebuilds the texts, and a test compares
//! their hashes with the sources'.

mod text;

pub use text::Block;

/// The PTX of one source file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ptx {
    /// The source's name without `.cu`; every entry point in it begins with this.
    pub name: &'static str,
    /// The text for compute capability 8.0 and later.
    pub sm_80: &'static str,
}

macro_rules! ptx {
    ($($(#[$doc:meta])* $constant:ident = $name:literal;)*) => {
        $(
            $(#[$doc])*
            pub const $constant: Ptx =
                Ptx { name: $name, sm_80: include_str!(concat!("../ptx/sm_80/", $name, ".ptx")) };
        )*
        /// Every text, in the order of the names.
        pub const ALL: &[Ptx] = &[$($constant),*];
    };
}

ptx! {
    /// A step of AdamW.
    ADAMW = "adamw";
    /// The residual sum of bf16 vectors.
    ADD_BF16 = "add_bf16";
    /// Windows of up to 32 rows by MLX affine 4-bit weights.
    AFFINE4_MATVEC = "affine4_matvec";
    /// Prompt matrices of MLX affine 4-bit weights, bf16 inputs.
    AFFINE4_PREFILL = "affine4_prefill";
    /// Gradients of a prompt's attention.
    ATTENTION_BACKWARD = "attention_backward";
    /// Attention of a few rows over chunks of a bf16 KV cache.
    ATTENTION_DECODE_BF16 = "attention_decode_bf16";
    /// Attention of a few rows over chunks of an e4m3 KV cache.
    ATTENTION_DECODE_FP8 = "attention_decode_fp8";
    /// The chunks put together.
    ATTENTION_MERGE = "attention_merge";
    /// Attention of a prompt chunk over a bf16 KV cache.
    ATTENTION_PREFILL_BF16 = "attention_prefill_bf16";
    /// Attention of a prompt chunk over an e4m3 KV cache.
    ATTENTION_PREFILL_FP8 = "attention_prefill_fp8";
    /// Windows of up to 32 rows by bf16 weights.
    BF16_MATVEC = "bf16_matvec";
    /// The loss of rows of logits and its gradient.
    CROSS_ENTROPY = "cross_entropy";
    /// Rows of a table of embeddings.
    EMBEDDING = "embedding";
    /// The gradient of a table of embeddings.
    EMBEDDING_BACKWARD = "embedding_backward";
    /// Sums of groups of bf16 inputs, for the prompt matrices in bf16.
    GROUP_SUMS = "group_sums";
    /// Matrix products of bf16, either operand transposed.
    MATMUL_BF16 = "matmul_bf16";
    /// Windows of up to 32 rows by GGUF Q4_0 weights.
    Q4_0_MATVEC = "q4_0_matvec";
    /// Prompt matrices of GGUF Q4_0 weights, int8 or bf16 inputs.
    Q4_0_PREFILL = "q4_0_prefill";
    /// Q4_0 blocks to the arrays of [`Q4_0_PREFILL`].
    Q4_0_SPLIT = "q4_0_split";
    /// Windows of up to 32 rows by GGUF Q8_0 weights.
    Q8_0_MATVEC = "q8_0_matvec";
    /// Prompt matrices of GGUF Q8_0 weights, int8 or bf16 inputs.
    Q8_0_PREFILL = "q8_0_prefill";
    /// Q8_0 blocks to the arrays of [`Q8_0_PREFILL`].
    Q8_0_SPLIT = "q8_0_split";
    /// RMS norm of rows, with the residual sum and the group sums.
    RMS_NORM = "rms_norm";
    /// The gradients of the RMS norm.
    RMS_NORM_BACKWARD = "rms_norm_backward";
    /// The gradient of rotary positions.
    ROPE_BACKWARD = "rope_backward";
    /// Bias, head norm, rotary position and KV cache.
    ROPE_KV = "rope_kv";
    /// The next token of each row of logits.
    SAMPLER = "sampler";
    /// SwiGLU of the two halves of a row.
    SWIGLU = "swiglu";
    /// The gradient of SwiGLU's inputs.
    SWIGLU_BACKWARD = "swiglu_backward";
    /// Prompt matrices of MLX affine 4-bit weights, int8 inputs.
    W4A8_PREFILL = "w4a8_prefill";
    /// bf16 rows to int8 inputs, with scales, sums and marks.
    W4A8_QUANTIZE = "w4a8_quantize";
}

impl Ptx {
    /// The names of the entry points, in the order of the text.
    pub fn entries(&self) -> impl Iterator<Item = &'static str> {
        text::entries(self.sm_80)
    }

    /// The block of one entry point, if it is here.
    ///
    /// ```
    /// use halfbyte_cuda_kernels::ptx;
    /// let block = ptx::W4A8_PREFILL.block("w4a8_prefill_g64_64x128").unwrap();
    /// assert_eq!((block.threads, block.shared_bytes), (256, 34304));
    /// assert_eq!(ptx::ADD_BF16.block("add_bf16").unwrap().shared_bytes, 0);
    /// assert_eq!(ptx::ADD_BF16.block("add"), None);
    /// ```
    #[must_use]
    pub fn block(&self, entry: &str) -> Option<Block> {
        text::block(self.sm_80, entry)
    }
}

/// The text that has an entry point, if one does.
///
/// ```
/// use halfbyte_cuda_kernels::ptx;
/// assert_eq!(ptx::of_entry("add_bf16"), Some(ptx::ADD_BF16));
/// assert_eq!(ptx::of_entry("add_bf17"), None);
/// ```
#[must_use]
pub fn of_entry(entry: &str) -> Option<Ptx> {
    ALL.iter().copied().find(|p| p.entries().any(|e| e == entry))
}
