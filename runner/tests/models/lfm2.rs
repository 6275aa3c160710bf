//! Files of LFM2's architectures: converted, and refused by name where something is wrong. Their logits are in `hybrid`.

use halfbyte::model::{FeedForward, Gating, Mixer, Transformer};
use halfbyte_gguf::{Array, Gguf, Metadata, TensorInfo, TensorType, Value};

use crate::hybrid::open;
use crate::hybrid_files::{EXACT, changed_file, converted, loaded, logits, message};
use crate::source_support::{Directory, N_VOCAB, Tensors, safetensors};

fn changed(change: impl FnOnce(&mut Metadata, &mut Vec<(TensorInfo, Vec<u8>)>)) -> Gguf {
    changed_file("lfm2.gguf", change)
}

fn changed_moe(change: impl FnOnce(&mut Metadata, &mut Vec<(TensorInfo, Vec<u8>)>)) -> Gguf {
    changed_file("lfm2moe.gguf", change)
}

#[test]
fn layers_are_what_their_heads_say() {
    let model = loaded(changed(|_, _| ())).unwrap();
    let convolves: Vec<bool> =
        model.description().layers.iter().map(|l| matches!(l.mixer, Mixer::ShortConvolution(_))).collect();
    assert_eq!(convolves, [true, false, true, false]);
    // Two layers with 2 rows of 32 numbers, and two with keys and values of one head.
    assert_eq!(model.description().state_bytes(), 2 * 2 * 32 * 4);
    assert_eq!(model.description().kv_heads().collect::<Vec<_>>(), [(1, 16); 2]);
    let list =
        |heads: Array| message(changed(|m, _| m.set("lfm2.attention.head_count_kv", Value::Array(heads))));
    assert_eq!(
        list(Array::I32(vec![0, 1, 0])),
        "lfm2.attention.head_count_kv = a list of 3: expected a number for each of 4 layers"
    );
    assert_eq!(
        list(Array::I32(vec![0, -1, 0, 1])),
        "lfm2.attention.head_count_kv = -1: expected no number below 0 in the list"
    );
    assert!(list(Array::F32(vec![0.0; 4])).contains("an array of integers"));
    assert_eq!(
        list(Array::U32(vec![0, 3, 0, 1])),
        "lfm2.attention.head_count = 2: expected a multiple of lfm2.attention.head_count_kv (3)"
    );
    assert!(list(Array::U32(vec![0, 0, 0, 1])).contains("blk.1.shortconv.conv.weight"));
    assert!(list(Array::U32(vec![1, 1, 0, 1])).contains("blk.0.attn_q_norm.weight"));
    // One number is that of all layers.
    let all = message(changed(|m, _| m.set("lfm2.attention.head_count_kv", 1_u32)));
    assert!(all.contains("blk.0.attn_q_norm.weight"), "{all}");
    let unsigned = Value::Array(Array::U32(vec![0, 1, 0, 1]));
    assert!(loaded(changed(|m, _| m.set("lfm2.attention.head_count_kv", unsigned))).is_ok());
}

#[test]
fn what_is_wrong_with_lfm2_is_named() {
    let set = |key: &'static str, value: u32| message(changed(|m, _| m.set(format!("lfm2.{key}"), value)));
    assert_eq!(set("shortconv.l_cache", 65), "lfm2.shortconv.l_cache = 65: expected at most 64");
    assert!(set("shortconv.l_cache", 0).starts_with("lfm2.shortconv.l_cache = 0: expected a number from 1"));
    assert_eq!(
        set("shortconv.l_cache", 4),
        "tensor blk.0.shortconv.conv.weight: expected shape [4, 32] (inputs first), got [3, 32]"
    );
    assert_eq!(set("expert_count", 8), "lfm2.expert_count = 8 is not supported; supported: 0 (dense models)");
    let both = message(changed(|m, _| m.set("lfm2.attention.causal", false)));
    assert_eq!(both, "lfm2.attention.causal = false is not supported; supported: true");
    let without = changed(|_, t| t.retain(|(info, _)| info.name != "token_embd_norm.weight"));
    assert!(message(without).contains("token_embd_norm.weight"));
    let error = Transformer::new(open("lfm2.gguf")).unwrap().share(0, 2).unwrap_err().to_string();
    assert_eq!(
        error,
        "ranks can't share a model with short convolutions: expected attention without gates in all layers"
    );
}

#[test]
fn biases_of_experts_count_for_the_choice_alone() {
    let plain = loaded(changed_moe(|_, _| ())).unwrap();
    let FeedForward::Experts(experts) = &plain.description().layers[1].feed_forward else {
        panic!("experts")
    };
    assert!(matches!(experts.gating, Gating::Sigmoid { normalised: true, bias: Some(_) }));
    assert!(!plain.description().layers[0].has_experts());
    let want = logits(&plain, EXACT);
    let with_bias = |change: fn(&mut f32)| {
        let gguf = changed_moe(|_, tensors| {
            for (_, bytes) in tensors.iter_mut().filter(|(info, _)| info.name.ends_with("exp_probs_b.bias")) {
                let mut numbers: Vec<f32> =
                    bytes.as_chunks().0.iter().map(|&b| f32::from_le_bytes(b)).collect();
                numbers.iter_mut().for_each(change);
                *bytes = bytemuck::cast_slice(&numbers).to_vec();
            }
        });
        logits(&loaded(gguf).unwrap(), EXACT)
    };
    // The same number more for all of them changes no choice, and so no bit.
    assert_eq!(with_bias(|x| *x += 1.0), want);
    assert_ne!(with_bias(|x| *x = 0.0), want);
    let unnormalised = changed_moe(|m, _| m.set("lfm2moe.expert_weights_norm", false));
    assert_ne!(logits(&loaded(unnormalised).unwrap(), EXACT), want);
}

#[test]
fn what_is_wrong_with_experts_is_named() {
    let set =
        |key: &'static str, value: u32| message(changed_moe(|m, _| m.set(format!("lfm2moe.{key}"), value)));
    assert_eq!(
        set("expert_gating_func", 1),
        "lfm2moe.expert_gating_func = 1 is not supported; supported: 2 (sigmoid)"
    );
    let scaled = message(changed_moe(|m, _| m.set("lfm2moe.expert_weights_scale", 2.5_f32)));
    assert_eq!(scaled, "lfm2moe.expert_weights_scale = 2.5 is not supported; supported: 1");
    assert!(set("leading_dense_block_count", 2).contains("blk.1.ffn_gate.weight"));
    let without = changed_moe(|_, t| t.retain(|(info, _)| info.name != "blk.1.exp_probs_b.bias"));
    assert!(message(without).contains("blk.1.exp_probs_b.bias"));
    let short = changed_moe(|_, tensors| {
        let (info, bytes) =
            tensors.iter_mut().find(|(info, _)| info.name == "blk.1.exp_probs_b.bias").unwrap();
        *info = TensorInfo::new(&info.name, TensorType::F32, &[4]).unwrap();
        bytes.truncate(16);
    });
    assert_eq!(message(short), "tensor blk.1.exp_probs_b.bias: expected shape [5] (inputs first), got [4]");
}

#[test]
fn conversions_keep_taps_routers_and_biases() {
    for name in ["hf_lfm2", "mlx_lfm2", "lfm2.gguf", "hf_lfm2moe", "mlx_lfm2moe", "lfm2moe.gguf"] {
        let file = open(name);
        let as_f32 = converted(&**file, TensorType::F32).unwrap();
        let (from_file, from_f32) = (Transformer::new(file.clone()).unwrap(), loaded(as_f32).unwrap());
        for (got, want) in logits(&from_f32, EXACT).into_iter().zip(logits(&from_file, EXACT)) {
            assert!((got - want).abs() < 1e-4, "{name}: {got}, {want}");
        }
        let q8_0 = converted(&**file, TensorType::Q8_0).unwrap();
        for (part, ty) in [
            ("shortconv.conv.weight", TensorType::F32),
            ("shortconv.in_proj.weight", TensorType::Q8_0),
            ("ffn_gate_inp.weight", TensorType::F32),
            ("exp_probs_b.bias", TensorType::F32),
        ] {
            for tensor in q8_0.tensors().iter().filter(|tensor| tensor.name.ends_with(part)) {
                assert_eq!(tensor.ty, ty, "{name}, {}", tensor.name);
            }
        }
        assert!(q8_0.tensor("token_embd_norm.weight").is_ok());
        loaded(q8_0).unwrap();
    }
}

/// A directory of zeros with one convolution, after a change to its configuration and its tensors.
fn directory(change: impl FnOnce(&mut serde_json::Value, &mut Tensors)) -> Result<(), String> {
    let mut config = serde_json::json!({
        "model_type": "lfm2", "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2,
        "num_key_value_heads": 1, "vocab_size": N_VOCAB, "max_position_embeddings": 64, "norm_eps": 1e-5,
        "tie_embedding": true, "conv_bias": false, "conv_L_cache": 3, "full_attn_idxs": [],
        "block_ff_dim": 48, "block_multiple_of": 32
    });
    let mut tensors = Tensors::new();
    tensors.insert("model.embed_tokens.weight".into(), ("F16", vec![N_VOCAB, 32]));
    tensors.insert("model.embedding_norm.weight".into(), ("F16", vec![32]));
    for (name, shape) in [
        ("operator_norm", vec![32]),
        ("ffn_norm", vec![32]),
        ("conv.in_proj", vec![96, 32]),
        ("conv.conv", vec![32, 1, 3]),
        ("conv.out_proj", vec![32, 32]),
        ("feed_forward.w1", vec![32, 32]),
        ("feed_forward.w2", vec![32, 32]),
        ("feed_forward.w3", vec![32, 32]),
    ] {
        tensors.insert(format!("model.layers.0.{name}.weight"), ("F16", shape));
    }
    change(&mut config, &mut tensors);
    let directory = Directory::new();
    directory.write("config.json", config.to_string());
    directory.write("model.safetensors", safetensors(&tensors));
    let opened = halfbyte::source::open(directory.path()).map_err(|error| error.to_string());
    let error = opened.and_then(|file| Transformer::new(file).map_err(|error| error.to_string())).map(|_| ());
    error.map_err(|error| error.replace(&*directory.path().to_string_lossy(), "DIR"))
}

#[test]
fn what_is_wrong_with_a_directory_is_named() {
    assert_eq!(directory(|_, _| ()), Ok(()));
    let taps = directory(|_, tensors| {
        tensors.insert("model.layers.0.conv.conv.weight".into(), ("F16", vec![32, 2, 3]));
    });
    assert_eq!(
        taps.unwrap_err(),
        "tensor \"model.layers.0.conv.conv.weight\" has shape [32, 2, 3]: expected [channels, 1, taps] or \
         [channels, taps, 1]"
    );
    let field = |name: &'static str, value: serde_json::Value| directory(|config, _| config[name] = value);
    assert_eq!(field("layer_types", serde_json::json!(["conv"])), Ok(()));
    for (name, value, message) in [
        ("conv_L_cache", 65.into(), "lfm2.shortconv.l_cache = 65: expected at most 64"),
        (
            "hidden_act",
            "gelu".into(),
            "DIR/config.json: hidden_act = \"gelu\" is not supported; supported: silu",
        ),
        ("sliding_window", 7.into(), "DIR/config.json: sliding_window = 7 is not supported; supported: null"),
        (
            "full_attn_idxs",
            serde_json::json!([1]),
            "DIR/config.json: full_attn_idxs is a list of 1: expected a list of numbers below 1",
        ),
        (
            "full_attn_idxs",
            serde_json::Value::Null,
            "DIR/config.json: full_attn_idxs is missing: expected a list of numbers below 1",
        ),
        (
            "layer_types",
            serde_json::json!(["sliding_attention"]),
            "DIR/config.json: layer_types is a list of 1: expected a list of conv and full_attention for 1 layers",
        ),
        ("block_multiple_of", 0.into(), "DIR/config.json: block_multiple_of is 0: expected at least 1"),
        (
            "block_ffn_dim_multiplier",
            1e30.into(),
            "DIR/config.json: block_ff_dim is 48: expected a width that fits in memory",
        ),
        (
            "block_ffn_dim_multiplier",
            2.0.into(),
            "tensor blk.0.ffn_gate.weight: expected shape [32, 64] (inputs first), got [32, 32]",
        ),
        (
            "block_auto_adjust_ff_dim",
            false.into(),
            "tensor blk.0.ffn_gate.weight: expected shape [32, 48] (inputs first), got [32, 32]",
        ),
    ] {
        assert_eq!(field(name, value), Err(message.to_owned()), "{name}");
    }
    let moe = |name: &'static str, value: serde_json::Value| {
        directory(|config, _| {
            for (field, value) in [("num_experts", 4), ("num_experts_per_tok", 2), ("num_dense_layers", 1)] {
                config[field] = value.into();
            }
            config["model_type"] = "lfm2_moe".into();
            config["intermediate_size"] = 32.into();
            config["moe_intermediate_size"] = 32.into();
            config[name] = value;
        })
    };
    assert_eq!(moe("use_expert_bias", true.into()), Ok(()));
    assert_eq!(
        moe("use_expert_bias", false.into()).unwrap_err(),
        "DIR/config.json: use_expert_bias = false is not supported; supported: true"
    );
    assert_eq!(
        moe("routed_scaling_factor", 2.5.into()).unwrap_err(),
        "DIR/config.json: routed_scaling_factor = 2.5 is not supported; supported: 1"
    );
    assert_eq!(
        moe("num_dense_layers", serde_json::Value::Null).unwrap_err(),
        "DIR/config.json: num_dense_layers is missing: expected a whole number"
    );
}
