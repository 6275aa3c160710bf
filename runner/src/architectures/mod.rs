//! The architectures that there is code for: one file each.
//!
//! An architecture says under which names files know it, how its tensors are called, and how a file's metadata becomes a
//! [`Description`]. Adding one whose parts exist is a file here and a line in [`ALL`]; `docs/add-an-architecture.md` goes
//! through it.

mod exaone;
mod exaone4;
mod experts;
mod gemma;
mod gemma2;
mod gemma3;
mod glm4;
mod gpt_oss;
mod granite;
mod granitemoe;
mod lfm2;
mod llama;
mod mistral3;
mod olmo2;
mod olmoe;
mod phi3;
mod qwen2;
mod qwen2moe;
mod qwen3;
mod qwen35;
mod qwen3moe;
mod reader;
mod rope;
mod seed_oss;
mod smollm3;
mod windows;

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use crate::model::{Description, Error};
use crate::source::{self, Object, Source};
use reader::Layout;
pub(crate) use reader::Reader;
use windows::set_windows;

/// Every architecture.
const ALL: [&Architecture; 25] = [
    &llama::LLAMA,
    &llama::MIXTRAL,
    &qwen2::QWEN2,
    &qwen2moe::QWEN2MOE,
    &qwen3::QWEN3,
    &qwen3moe::QWEN3MOE,
    &qwen35::QWEN35,
    &qwen35::QWEN35MOE,
    &exaone::EXAONE,
    &exaone4::EXAONE4,
    &gemma::GEMMA,
    &gemma2::GEMMA2,
    &gemma3::GEMMA3,
    &glm4::GLM4,
    &gpt_oss::GPT_OSS,
    &granite::GRANITE,
    &granitemoe::GRANITEMOE,
    &lfm2::LFM2,
    &lfm2::LFM2MOE,
    &mistral3::MISTRAL3,
    &olmo2::OLMO2,
    &olmoe::OLMOE,
    &phi3::PHI3,
    &seed_oss::SEED_OSS,
    &smollm3::SMOLLM3,
];

/// What there is to know of an architecture.
#[derive(Debug)]
pub(crate) struct Architecture {
    /// The value of `general.architecture` in GGUF files.
    pub(crate) name: &'static str,
    /// The values of `model_type` in `config.json`.
    pub(crate) model_types: &'static [&'static str],
    /// Which elements of a head GGUF files have side by side for rotation.
    pub(crate) rope_order: RopeOrder,
    /// The same of Hugging Face's checkpoints.
    pub(crate) directory_rope_order: RopeOrder,
    /// What checkpoints call the modules that are not in a layer, and the layers.
    pub(crate) roots: Roots,
    /// What GGUF files call the last norm.
    pub(crate) last_norm: &'static str,
    /// Modules of a layer as Hugging Face's checkpoints call them, and as GGUF files do; `*` stands for a number.
    pub(crate) modules: &'static [(&'static str, &'static str)],
    /// Parameters of a layer that are no module's weight or bias and that GGUF files do not call `.weight`: their whole names
    /// in both.
    pub(crate) parameters: &'static [(&'static str, &'static str)],
    /// Fields of `config.json` that may be missing, and what they are then.
    pub(crate) defaults: &'static [(&'static str, u32)],
    /// The part of a head that rotates where `config.json` does not say it.
    pub(crate) partial_rotary: f64,
    /// Whether layers with a window have rotations of their own, which are not scaled.
    pub(crate) plain_in_windows: bool,
    /// What becomes of a checkpoint's tensor, which the first argument calls by GGUF's name. Whether the files' norms lack the
    /// 1 of their weights although other files of the architecture have it, the second argument says.
    pub(crate) form: fn(&str, bool) -> Form,
    /// Checks what is particular to it in `config.json`, and adds it to the metadata.
    pub(crate) configure: fn(&Object, &mut Metadata) -> Result<(), source::Error>,
    /// Makes the description from GGUF's metadata and tensor names.
    pub(crate) describe: fn(&Reader<'_>) -> Result<Description, Error>,
}

/// What becomes of a checkpoint's tensor when it is shown as a GGUF file has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// It stays as it is stored.
    AsStored,
    /// 1 is added to each number.
    PlusOne,
    /// Each number `x` becomes `-exp(x)`.
    MinusExp,
    /// The taps of a convolution lose their dimension of one channel.
    Taps,
}

/// What checkpoints call the modules that are not in a layer, and the layers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Roots {
    /// The embedding.
    pub(crate) embedding: &'static str,
    /// The last norm.
    pub(crate) norm: &'static str,
    /// What stands before a layer's number.
    pub(crate) layers: &'static str,
}

impl Architecture {
    /// What most architectures have.
    const USUAL: Self = Self {
        name: "",
        model_types: &[],
        rope_order: RopeOrder::Halves,
        directory_rope_order: RopeOrder::Halves,
        roots: Roots { embedding: "model.embed_tokens", norm: "model.norm", layers: "model.layers." },
        last_norm: "output_norm",
        modules: &[],
        parameters: &[],
        defaults: &[],
        partial_rotary: 1.0,
        plain_in_windows: false,
        form: |_, _| Form::AsStored,
        configure: |_, _| Ok(()),
        describe: |reader| reader.dense(Layout::LLAMA, |_, _, _, _| Ok(())),
    };

    /// The architecture with this `general.architecture`.
    fn by_name(name: &str) -> Result<&'static Self, Error> {
        ALL.into_iter().find(|architecture| architecture.name == name).ok_or_else(|| Error::Architecture {
            got: name.chars().take(64).collect(),
            supported: names().join(", "),
        })
    }

    /// The architecture with this `model_type`, or the names of all that there are.
    pub(crate) fn by_model_type(model_type: Option<&str>) -> Result<&'static Self, String> {
        let is_it = |known: &&Self| model_type.is_some_and(|name| known.model_types.contains(&name));
        ALL.into_iter().find(is_it).ok_or_else(|| ALL.map(|known| known.model_types.join(", ")).join(", "))
    }

    /// GGUF's name of the tensor that a checkpoint calls `name`, if the architecture has it.
    pub(crate) fn gguf_name(&self, name: &str) -> Option<String> {
        // A parameter that is neither a weight nor a bias goes by a module's name; it is a weight in GGUF.
        let (module, kind) = match name.rsplit_once('.') {
            Some((module, kind @ ("weight" | "bias"))) => (module, kind),
            _ => (name, "weight"),
        };
        let root =
            [(self.roots.embedding, "token_embd"), (self.roots.norm, self.last_norm), ("lm_head", "output")];
        if let Some((_, known)) = root.iter().find(|(theirs, _)| *theirs == module) {
            return (kind == "weight").then(|| format!("{known}.weight"));
        }
        let (number, whole) = name.strip_prefix(self.roots.layers)?.split_once('.')?;
        if !is_number(number) {
            return None;
        }
        if let Some((_, part)) = self.parameters.iter().find(|(theirs, _)| *theirs == whole) {
            return Some(format!("blk.{number}.{part}"));
        }
        let (_, module) = module.strip_prefix(self.roots.layers)?.split_once('.')?;
        let part = self.modules.iter().find_map(|&(theirs, ours)| match theirs.split_once('*') {
            None => (theirs == module).then(|| ours.to_owned()),
            Some((before, after)) => {
                let number = module.strip_prefix(before)?.strip_suffix(after)?;
                is_number(number).then(|| ours.replace('*', number))
            }
        })?;
        Some(format!("blk.{number}.{part}.{kind}"))
    }
}

/// Whether `text` is a number as it is written by those who write no sign and no leading zeros.
fn is_number(text: &str) -> bool {
    text.parse().is_ok_and(|n: u32| n.to_string() == text)
}

/// GGUF's names of all architectures, each once.
fn names() -> Vec<&'static str> {
    let mut names = ALL.map(|architecture| architecture.name).to_vec();
    names.dedup();
    names
}

/// The description of the model in `source`.
///
/// # Errors
/// An unsupported architecture, a missing key, a value of the wrong type, out of range or at odds with another one, or a
/// feature that there is no code for. Tensors are not looked at but to see whether optional ones are there.
pub(crate) fn describe(source: &dyn Source) -> Result<Description, Error> {
    let architecture = Architecture::by_name(source.metadata().str("general.architecture")?)?;
    (architecture.describe)(&Reader::new(source, architecture))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_checkpoints_tensors() {
        for (name, expected) in [
            ("model.embed_tokens.weight", Some("token_embd.weight")),
            ("model.layers.0.self_attn.q_proj.weight", Some("blk.0.attn_q.weight")),
            ("model.layers.31.self_attn.k_proj.bias", Some("blk.31.attn_k.bias")),
            ("model.layers.7.mlp.down_proj.weight", Some("blk.7.ffn_down.weight")),
            ("model.layers.7.mlp.down_proj.scales", None),
            ("model.layers.07.mlp.down_proj.weight", None),
            ("model.layers.+7.mlp.down_proj.weight", None),
            ("model.layers.0.block_sparse_moe.gate.weight", None),
            ("model.layers.0.mlp.experts.3.up_proj.weight", None),
            ("model.layers.0.self_attn.q_norm.weight", None),
            ("transformer.h.0.attn.weight", None),
        ] {
            assert_eq!(llama::LLAMA.gguf_name(name).as_deref(), expected, "{name}");
        }
        for (name, expected) in [
            ("model.layers.0.mlp.experts.12.up_proj.weight", Some("blk.0.ffn_up.12.weight")),
            ("model.layers.0.mlp.experts.012.up_proj.weight", None),
            ("model.layers.0.mlp.experts.up_proj.weight", None),
            ("model.layers.2.mlp.switch_mlp.down_proj.weight", Some("blk.2.ffn_down_exps.weight")),
            ("model.layers.2.mlp.gate.weight", Some("blk.2.ffn_gate_inp.weight")),
        ] {
            assert_eq!(qwen3moe::QWEN3MOE.gguf_name(name).as_deref(), expected, "{name}");
        }
        let name = "model.layers.0.self_attn.q_norm.weight";
        assert_eq!(qwen3::QWEN3.gguf_name(name).as_deref(), Some("blk.0.attn_q_norm.weight"));
    }
}
