//! Every supported architecture against llama.cpp: small random models, the logits after each token.

use halfbyte::model::{ActivationType, Compute, CpuSession, Error, SessionOptions};
use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::Isa;
use halfbyte_gguf::{Gguf, GgufWriter, Metadata, TensorInfo};
use halfbyte_testing::golden;
use std::path::PathBuf;

const EXACT: SessionOptions =
    SessionOptions { context: 64, activations: ActivationType::F32, kv_type: KvType::F32, chunk: 5 };

fn open(name: &str) -> Gguf {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("../goldens/tiny_{name}.gguf"));
    Gguf::open(path).expect("the model opens")
}

#[test]
fn logits_are_those_of_llama_cpp() {
    let golden = golden("tiny_models.json");
    let cases = golden["cases"].as_object().expect("cases");
    assert_eq!(cases.len(), 4);
    let pool = Compute::new(2).expect("a pool");
    for (name, case) in cases {
        let gguf = open(name);
        let model = crate::common::transformer(&gguf).expect("the model loads");
        let ids: Vec<u32> = serde_json::from_value(case["ids"].clone()).expect("ids");
        let want: Vec<Vec<f64>> = serde_json::from_value(case["logits"].clone()).expect("logits");
        for isa in Isa::available() {
            let mut session = CpuSession::new(&model, &pool.clone().with_isa(isa), EXACT).expect("a session");
            let mut rows = 0;
            session
                .feed_all(&ids, |i, logits| {
                    for (id, (&got, want)) in logits.iter().zip(&want[i]).enumerate() {
                        let difference = (f64::from(got) - want).abs();
                        // Logits reach 14; llama.cpp rounds in f32 as we do, in another order.
                        assert!(
                            difference < 2e-4,
                            "{name}, {isa}, token {i}, logit {id}: {got}, recorded {want}"
                        );
                    }
                    rows += 1;
                })
                .expect("the prompt fits");
            assert_eq!(rows, want.len());
        }
    }
}

/// The model `name` with its metadata and tensor list changed, as a file in memory.
fn changed(name: &str, change: impl FnOnce(&mut Metadata, &mut Vec<(TensorInfo, Vec<u8>)>)) -> Gguf {
    let gguf = open(name);
    let mut metadata = gguf.metadata().clone();
    let mut tensors: Vec<_> = gguf
        .tensors()
        .iter()
        .map(|t| (TensorInfo::new(&t.name, t.ty, &t.dims).expect("a tensor"), gguf.bytes(t).to_vec()))
        .collect();
    change(&mut metadata, &mut tensors);
    let infos: Vec<TensorInfo> = tensors.iter().map(|(info, _)| info.clone()).collect();
    let mut writer = GgufWriter::new(Vec::new(), &metadata, &infos).expect("a writer");
    for (info, bytes) in &tensors {
        writer.write_tensor(&info.name, bytes).expect("written");
    }
    Gguf::from_vec(writer.finish().expect("finished")).expect("the file opens")
}

fn message(gguf: &Gguf) -> String {
    crate::common::transformer(gguf).map(|_| ()).expect_err("refused").to_string()
}

#[test]
fn what_is_wrong_with_a_model_is_named() {
    let set = |key: &'static str, value: u32| changed("qwen3", move |m, _| m.set(key, value));
    let named = |architecture: &'static str| {
        changed("qwen3", move |m, _| m.set("general.architecture", architecture))
    };
    assert_eq!(
        message(&named("mamba")),
        "architecture \"mamba\" is not supported; supported: llama, qwen2, qwen2moe, qwen3, qwen3moe, qwen35, qwen35moe, exaone, exaone4, gemma, gemma2, gemma3, glm4, gpt-oss, granite, granitemoe, lfm2, lfm2moe, mistral3, olmo2, olmoe, phi3, seed_oss, smollm3"
    );
    assert_eq!(
        message(&set("qwen3.expert_count", 8)),
        "qwen3.expert_count = 8 is not supported; supported: 0 (dense models)"
    );
    assert_eq!(
        message(&set("qwen3.attention.head_count", 3)),
        "qwen3.attention.head_count = 3: expected a multiple of qwen3.attention.head_count_kv (2)"
    );
    assert_eq!(
        message(&set("qwen3.feed_forward_length", 65)),
        "tensor blk.0.ffn_gate.weight: expected shape [32, 65] (inputs first), got [32, 64]"
    );
    assert!(
        message(&set("qwen3.block_count", 0)).starts_with("qwen3.block_count = 0: expected a number from 1")
    );
    assert!(message(&set("qwen3.block_count", 3)).contains("blk.2.attn_norm.weight"));
    assert_eq!(
        message(&set("qwen3.block_count", 1)),
        "tensor blk.1.attn_norm.weight is not part of architecture qwen3 as supported here"
    );
    let without = changed("qwen2", |_, t| t.retain(|(info, _)| info.name != "blk.1.attn_k.bias"));
    assert!(message(&without).contains("blk.1.attn_k.bias"), "{}", message(&without));
    let other = changed("llama_linear", |m, _| m.set("llama.rope.scaling.type", "ntk"));
    assert!(
        message(&other)
            .starts_with("llama.rope.scaling.type = ntk is not supported; supported: none, linear")
    );
    let long = changed("llama_linear", |m, _| m.set("llama.rope.scaling.type", "longrope"));
    assert!(message(&long).contains("rope_factors_long.weight"), "{}", message(&long));
    let factors = changed("llama_factors", |_, t| {
        let (_, bytes) = t.iter_mut().find(|(info, _)| info.name == "rope_freqs.weight").expect("there");
        bytes[..4].copy_from_slice(&0f32.to_le_bytes());
    });
    assert_eq!(message(&factors), "rope_freqs.weight = 0: expected positive finite factors");
    assert!(matches!(crate::common::transformer(&named("")), Err(Error::Architecture { .. })));
}
