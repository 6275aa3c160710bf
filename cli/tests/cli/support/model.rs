//! A model of a few kilobytes, written here so that nothing is known of it but what a test says.

use halfbyte_gguf::{GgufWriter, Metadata, StringTable, TensorInfo, TensorType, Value};

const WIDTH: usize = 64;
const CONTEXT: u32 = 1 << 16;

/// The chat template.
pub(crate) const TEMPLATE: &str =
    "{% for m in messages %}<s>{{ m.role[0] }}:{{ m.content }}</s>{% endfor %}<s>a:";

/// GPT-2's alphabet of visible characters for the 256 bytes.
fn byte_tokens() -> Vec<String> {
    let visible = |b: u32| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut hidden = 256;
    let letter = |b: u32| {
        let code = if visible(b) { b } else { hidden };
        hidden += u32::from(!visible(b));
        char::from_u32(code).unwrap().to_string()
    };
    (0..256).map(letter).collect()
}

fn metadata(template: Option<&str>, n_vocab: usize, tokens: StringTable) -> Metadata {
    let mut m = Metadata::new();
    m.set("general.architecture", "llama");
    for (key, value) in [
        ("block_count", 1),
        ("context_length", CONTEXT),
        ("embedding_length", WIDTH as u32),
        ("feed_forward_length", WIDTH as u32),
        ("attention.head_count", 1),
        ("attention.head_count_kv", 1),
    ] {
        m.set(format!("llama.{key}"), value);
    }
    m.set("llama.attention.layer_norm_rms_epsilon", 1e-5_f32);
    m.set("tokenizer.ggml.model", "gpt2");
    m.set("tokenizer.ggml.pre", "gpt-2");
    let types: Vec<i32> = (0..n_vocab).map(|id| if id < 256 { 1 } else { 3 }).collect();
    m.set("tokenizer.ggml.tokens", tokens);
    m.set("tokenizer.ggml.token_type", types);
    m.set("tokenizer.ggml.merges", StringTable::default());
    if let Some(template) = template {
        m.set("tokenizer.ggml.bos_token_id", 256_u32);
        m.set("tokenizer.ggml.eos_token_id", 257_u32);
        m.set("tokenizer.chat_template", template);
    }
    m.set("halfbyte.long", Value::from((0..100).map(|i| i as f32).collect::<Vec<_>>()));
    m
}

/// The bytes of the file.
pub(crate) fn build(template: Option<&str>) -> Vec<u8> {
    let mut tokens = byte_tokens();
    tokens.extend(["<s>".to_owned(), "</s>".to_owned()]);
    let n_vocab = tokens.len();
    let metadata = metadata(template, n_vocab, tokens.into_iter().collect());
    let matrix = |name: &str, rows: usize| TensorInfo::new(name, TensorType::F16, &[WIDTH, rows]).unwrap();
    let norm = |name: &str| TensorInfo::new(name, TensorType::F32, &[WIDTH]).unwrap();
    let tensors = [
        matrix("token_embd.weight", n_vocab),
        norm("blk.0.attn_norm.weight"),
        matrix("blk.0.attn_q.weight", WIDTH),
        matrix("blk.0.attn_k.weight", WIDTH),
        matrix("blk.0.attn_v.weight", WIDTH),
        matrix("blk.0.attn_output.weight", WIDTH),
        norm("blk.0.ffn_norm.weight"),
        matrix("blk.0.ffn_gate.weight", WIDTH),
        matrix("blk.0.ffn_up.weight", WIDTH),
        matrix("blk.0.ffn_down.weight", WIDTH),
        norm("output_norm.weight"),
    ];
    let mut writer = GgufWriter::new(Vec::new(), &metadata, &tensors).unwrap();
    let mut state = 7_u64;
    for tensor in &tensors {
        let bytes: Vec<u8> = match tensor.ty {
            TensorType::F32 => bytemuck::cast_slice(&[1.0_f32; WIDTH]).to_vec(),
            _ => {
                let mut values: Vec<half::f16> = (0..tensor.n_elements())
                    .map(|_| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        half::f16::from_f32((state >> 40) as f32 / (1 << 24) as f32 * 0.4 - 0.2)
                    })
                    .collect();
                if tensor.name == "token_embd.weight" {
                    // `</s>` has the logit 0, which is never the highest: a greedy reply does not end.
                    values[(n_vocab - 1) * WIDTH..].fill(half::f16::ZERO);
                }
                bytemuck::cast_slice(&values).to_vec()
            }
        };
        writer.write_tensor(&tensor.name, &bytes).unwrap();
    }
    writer.finish().unwrap()
}
