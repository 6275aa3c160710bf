//! The architectures that there is code for: one file each.
//!
//! An architecture says under which names files know it, how its tensors are called, and how a file's metadata becomes a
//! [`Description`]. Adding one whose parts exist is a file here and a line in [`ALL`]; `docs/add-an-architecture.md` goes
//! through it.

mod llama;
mod qwen2;
mod qwen3;
mod qwen35;
mod reader;

use halfbyte_cpu_kernels::RopeOrder;
use halfbyte_gguf::Metadata;

use crate::model::{Description, Error};
use crate::source::{self, Object, Source};
pub(crate) use reader::Reader;

/// Every architecture.
const ALL: [&Architecture; 4] = [&llama::LLAMA, &qwen2::QWEN2, &qwen3::QWEN3, &qwen35::QWEN35];

/// What there is to know of an architecture.
#[derive(Debug)]
pub(crate) struct Architecture {
    /// The value of `general.architecture` in GGUF files.
    pub(crate) name: &'static str,
    /// The value of `model_type` in `config.json`.
    pub(crate) model_type: &'static str,
    /// Which elements of a head GGUF files have side by side for rotation. Hugging Face's checkpoints have
    /// [`RopeOrder::Halves`] always.
    pub(crate) rope_order: RopeOrder,
    /// Modules of a layer as Hugging Face's checkpoints call them, and as GGUF files do.
    pub(crate) modules: &'static [(&'static str, &'static str)],
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

impl Architecture {
    /// What becomes of the tensor that GGUF calls `known`. `norms_lack_one`: the files are as Hugging Face has them, and not
    /// as MLX has them.
    pub(crate) fn form(&self, known: &str, norms_lack_one: bool) -> Form {
        if self.name == qwen35::QWEN35.name { qwen35::form(known, norms_lack_one) } else { Form::AsStored }
    }

    /// The part of a head that rotates where `config.json` does not say it, and whether it may say another one than 1.
    pub(crate) fn partial_rotary(&self) -> (f64, bool) {
        if self.name == qwen35::QWEN35.name { (qwen35::PARTIAL_ROTARY, true) } else { (1.0, false) }
    }

    /// The architecture with this `general.architecture`.
    fn by_name(name: &str) -> Result<&'static Self, Error> {
        ALL.into_iter().find(|architecture| architecture.name == name).ok_or_else(|| Error::Architecture {
            got: name.chars().take(64).collect(),
            supported: names(|architecture| architecture.name),
        })
    }

    /// The architecture with this `model_type`, or the names of all that there are.
    pub(crate) fn by_model_type(model_type: Option<&str>) -> Result<&'static Self, String> {
        // Mistral's models are Llama's with a window, which `configure` refuses where it is used.
        let model_type = model_type.map(|name| match name {
            "mistral" => "llama",
            // The text part of a model that sees.
            "qwen3_5_text" => "qwen3_5",
            name => name,
        });
        let found = ALL.into_iter().find(|architecture| Some(architecture.model_type) == model_type);
        found.ok_or_else(|| names(|architecture| architecture.model_type))
    }

    /// GGUF's name of the tensor that a checkpoint calls `name`, if the architecture has it.
    pub(crate) fn gguf_name(&self, name: &str) -> Option<String> {
        // Models that see have their text part's modules in another one.
        let text = ["model.language_model.", "language_model.model."];
        let inner =
            text.iter().find_map(|prefix| name.strip_prefix(prefix)).map(|rest| format!("model.{rest}"));
        let name = inner.as_deref().unwrap_or_else(|| name.strip_prefix("language_model.").unwrap_or(name));
        match name {
            "model.embed_tokens.weight" => return Some("token_embd.weight".to_owned()),
            "model.norm.weight" => return Some("output_norm.weight".to_owned()),
            "lm_head.weight" => return Some("output.weight".to_owned()),
            _ => {}
        }
        let (layer, rest) = name.strip_prefix("model.layers.")?.split_once('.')?;
        // The number as it is written by those who write no sign and no leading zeros.
        let number: u32 = layer.parse().ok().filter(|n: &u32| n.to_string() == layer)?;
        if let Some((_, part)) = self.modules.iter().find(|(theirs, _)| *theirs == rest) {
            return Some(format!("blk.{number}.{part}"));
        }
        let (module, kind) = rest.rsplit_once('.')?;
        let (_, part) = self.modules.iter().find(|(theirs, _)| *theirs == module)?;
        matches!(kind, "weight" | "bias").then(|| format!("blk.{number}.{part}.{kind}"))
    }
}

/// One name of every architecture, for messages.
fn names(name: impl Fn(&Architecture) -> &'static str) -> String {
    ALL.map(name).join(", ")
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
            ("model.layers.0.self_attn.q_norm.weight", None),
            ("transformer.h.0.attn.weight", None),
        ] {
            assert_eq!(llama::LLAMA.gguf_name(name).as_deref(), expected, "{name}");
        }
        let name = "model.layers.0.self_attn.q_norm.weight";
        assert_eq!(qwen3::QWEN3.gguf_name(name).as_deref(), Some("blk.0.attn_q_norm.weight"));
    }
}
