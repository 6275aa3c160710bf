//! Files of models with recurrent layers: converted, calibrated, and refused by name where something is wrong.

use std::ops::ControlFlow;

use halfbyte::model::{
    ActivationType, Compute, CpuSession, Error, Layerwise, Mixer, SessionOptions, Stage, Transformer, Visitor,
};
use halfbyte::requantize::{Encoding, Plan};
use halfbyte::source::{ModelFile, Source};
use halfbyte_attention::KvType;
use halfbyte_gguf::{Array, Gguf, GgufWriter, Metadata, TensorInfo, TensorType, Value};

use crate::hybrid::{NAMES, open};
use crate::source_support::{Directory, N_VOCAB, Tensors, safetensors};

pub(crate) const EXACT: SessionOptions =
    SessionOptions { context: 64, activations: ActivationType::F32, kv_type: KvType::F32, chunk: 5 };
const IDS: [u32; 9] = [5, 17, 3, 40, 41, 41, 0, 27, 12];

/// The small Qwen's file with its metadata and its tensors changed, in memory.
fn changed(change: impl FnOnce(&mut Metadata, &mut Vec<(TensorInfo, Vec<u8>)>)) -> Gguf {
    changed_file("qwen35.gguf", change)
}

/// The file `name` with its metadata and its tensors changed, in memory.
pub(crate) fn changed_file(
    name: &str,
    change: impl FnOnce(&mut Metadata, &mut Vec<(TensorInfo, Vec<u8>)>),
) -> Gguf {
    let file = open(name);
    let mut metadata = file.metadata().clone();
    let mut tensors: Vec<_> = file
        .tensors()
        .iter()
        .map(|t| (TensorInfo::new(&t.name, t.ty, &t.dims).unwrap(), file.bytes(t).to_vec()))
        .collect();
    change(&mut metadata, &mut tensors);
    let infos: Vec<TensorInfo> = tensors.iter().map(|(info, _)| info.clone()).collect();
    let mut writer = GgufWriter::new(Vec::new(), &metadata, &infos).unwrap();
    for (info, bytes) in &tensors {
        writer.write_tensor(&info.name, bytes).unwrap();
    }
    Gguf::from_vec(writer.finish().unwrap()).unwrap()
}

pub(crate) fn logits(model: &Transformer, options: SessionOptions) -> Vec<f32> {
    let mut session = CpuSession::new(model, &Compute::new(2).unwrap(), options).unwrap();
    let mut all = Vec::new();
    session.feed_all(&IDS, |_, logits| all.extend_from_slice(logits)).unwrap();
    all
}

pub(crate) fn loaded(gguf: Gguf) -> Result<Transformer, Error> {
    Transformer::new(ModelFile::from(gguf))
}

pub(crate) fn message(gguf: Gguf) -> String {
    loaded(gguf).map(|_| ()).expect_err("refused").to_string()
}

#[test]
fn what_is_wrong_with_a_hybrid_is_named() {
    let set = |key: &'static str, value: u32| message(changed(|m, _| m.set(format!("qwen35.{key}"), value)));
    assert_eq!(
        set("ssm.group_count", 3),
        "qwen35.ssm.time_step_rank = 4: expected a multiple of qwen35.ssm.group_count (3)"
    );
    assert_eq!(
        set("ssm.inner_size", 63),
        "qwen35.ssm.inner_size = 63: expected a multiple of qwen35.ssm.time_step_rank (4)"
    );
    assert_eq!(set("ssm.conv_kernel", 65), "qwen35.ssm.conv_kernel = 65: expected at most 64");
    assert!(set("ssm.conv_kernel", 0).starts_with("qwen35.ssm.conv_kernel = 0: expected a number from 1"));
    assert_eq!(
        set("ssm.conv_kernel", 3),
        "tensor blk.0.ssm_conv1d.weight: expected shape [3, 128] (inputs first), got [4, 128]"
    );
    // 2^20 heads of 2^20: their state is refused before it is allocated.
    let huge = changed(|m, _| {
        for key in ["group_count", "time_step_rank", "inner_size", "state_size"] {
            m.set(format!("qwen35.ssm.{key}"), 1_u32 << 20);
        }
    });
    assert!(message(huge).contains("at most 2^30 numbers"));
    assert!(set("full_attention_interval", 2).contains("blk.1.attn_q_norm.weight"));
    assert_eq!(
        set("expert_count", 8),
        "qwen35.expert_count = 8 is not supported; supported: 0 (dense models)"
    );
    assert_eq!(
        set("nextn_predict_layers", 4),
        "qwen35.nextn_predict_layers = 4: expected fewer than qwen35.block_count (4)"
    );
    let list = |layers: Vec<bool>| {
        let layers = Value::Array(Array::Bool(layers));
        changed(|m, _| m.set("qwen35.attention.recurrent_layers", layers))
    };
    assert_eq!(
        message(list(vec![true; 3])),
        "qwen35.attention.recurrent_layers = a list of 3: expected one flag for each of 4 layers"
    );
    assert!(loaded(list(vec![true, true, true, false])).is_ok());
    assert!(message(list(vec![true, true, false, false])).contains("blk.2.attn_q_norm.weight"));
    let without = changed(|_, t| t.retain(|(info, _)| info.name != "blk.1.ssm_dt.bias"));
    assert!(message(without).contains("blk.1.ssm_dt.bias"));
}

#[test]
fn blocks_that_make_drafts_are_left_out() {
    let drafting = changed(|m, tensors| {
        m.set("qwen35.block_count", 5_u32);
        m.set("qwen35.nextn_predict_layers", 1_u32);
        for name in ["blk.4.attn_norm.weight", "blk.4.nextn.eh_proj.weight"] {
            tensors.push((TensorInfo::new(name, TensorType::F32, &[2]).unwrap(), vec![0; 8]));
        }
    });
    let model = loaded(drafting).unwrap();
    assert_eq!(model.description().unused.len(), 2);
    let plain = Transformer::new(open("qwen35.gguf")).unwrap();
    assert_eq!(logits(&model, EXACT), logits(&plain, EXACT));
}

#[test]
fn ranks_refuse_the_delta_rule_by_name() {
    let error = Transformer::new(open("qwen35.gguf")).unwrap().share(0, 2).unwrap_err().to_string();
    assert_eq!(
        error,
        "ranks can't share a model with the gated delta rule: expected attention without gates in all layers"
    );
}

/// `source` in another type.
pub(crate) fn converted(source: &dyn Source, ty: TensorType) -> Result<Gguf, halfbyte::requantize::Error> {
    let plan = Plan::new(source, Encoding::new(ty).unwrap(), &[])?;
    let compute = Compute::new(2).unwrap();
    let mut writer = GgufWriter::new(Vec::new(), plan.metadata(), plan.tensors())?;
    plan.write(compute.context(), &mut writer, &(), |_| ControlFlow::Continue(()))?.unwrap();
    Ok(Gguf::from_vec(writer.finish()?).unwrap())
}

#[test]
fn conversions_keep_the_taps_and_refuse_to_reorder_heads() {
    for name in ["qwen35.gguf", "mlx_qwen35", "qwen35moe.gguf", "mlx_qwen35moe"] {
        let file = open(name);
        let q8_0 = converted(&**file, TensorType::Q8_0).unwrap();
        let taps = q8_0.tensor("blk.0.ssm_conv1d.weight").unwrap();
        assert_eq!((taps.ty, taps.dims[0]), (TensorType::F32, 4));
        assert_eq!(q8_0.tensor("blk.0.attn_qkv.weight").unwrap().ty, TensorType::Q8_0);
        // Each file against what its weights are in F32: nothing else was rounded, and nothing was moved.
        let widened = converted(&q8_0, TensorType::F32).unwrap();
        let from_q8_0 = [loaded(q8_0).unwrap(), loaded(widened).unwrap()];
        let as_f32 = loaded(converted(&**file, TensorType::F32).unwrap()).unwrap();
        for [a, b] in [from_q8_0, [Transformer::new(file).unwrap(), as_f32]] {
            let pairs = logits(&a, EXACT).into_iter().zip(logits(&b, EXACT));
            let distance = pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(distance < 1e-4, "{name}: {distance}");
        }
    }
    let error = converted(&**open("hf_qwen35"), TensorType::F32).unwrap_err().to_string();
    assert_eq!(
        error,
        "2 key heads serve 4 value heads, which a GGUF file has in another order than this directory: expected as \
         many of both, or a GGUF file to convert"
    );
}

/// Keeps the inputs of the output matrix, and counts the stages.
#[derive(Default)]
struct Keeper(Vec<f32>, usize);

impl Visitor for Keeper {
    type Error = Error;

    fn inputs(&mut self, stage: Stage, x: &[f32], _: usize) -> Result<(), Error> {
        self.1 += 1;
        if stage == Stage::Output {
            self.0.extend_from_slice(x);
        }
        Ok(())
    }
}

#[test]
fn calibration_sees_what_a_session_computes() {
    // Calibration has no code for experts.
    for name in NAMES.into_iter().filter(|name| !name.contains("moe")) {
        let model = Transformer::new(open(name)).unwrap();
        let mut keeper = Keeper::default();
        // Each window begins with an empty state.
        let windows = [IDS.to_vec(), IDS[..2].to_vec(), IDS.to_vec()];
        Layerwise::new(&model, &Compute::new(2).unwrap(), &windows).unwrap().run(&mut keeper).unwrap();
        let layers = model.description().layers.len();
        assert_eq!(keeper.1, windows.len() * (4 * layers + 1));
        let width = model.description().width;
        let (first, rest) = keeper.0.split_at(IDS.len() * width);
        assert_eq!(first, &rest[2 * width..], "{name}");
        assert_eq!(first[..2 * width], rest[..2 * width], "{name}");
        // A short convolution has all that reads its layer's input in one tensor.
        let matrices = Stage::MixerInput(layers - 1).tensors(model.description());
        let convolves = matches!(model.description().layers[layers - 1].mixer, Mixer::ShortConvolution(_));
        assert_eq!(matrices.len(), if convolves { 1 } else { 3 });
        let matrices = Stage::MixerInput(0).tensors(model.description());
        assert_eq!(
            matrices.len(),
            if name.contains("qwen") {
                4
            } else if convolves {
                3
            } else {
                1
            }
        );
        // The output matrix of the first file is in f32: its products are the logits.
        let file = open(name);
        let Some(info) = file.opt_tensor("output.weight").filter(|info| info.ty == TensorType::F32) else {
            continue;
        };
        let weights: &[f32] = bytemuck::cast_slice(file.bytes(info));
        let want = logits(&model, EXACT);
        for (x, want) in first.chunks(width).zip(want.chunks(info.n_rows())) {
            for (w, want) in weights.chunks(width).zip(want) {
                let dot: f64 = w.iter().zip(x).map(|(&w, &x)| f64::from(w) * f64::from(x)).sum();
                assert!((dot - f64::from(*want)).abs() < 1e-4, "{name}: {dot}, {want}");
            }
        }
    }
}

/// A directory of zeros with one recurrent layer, after a change to its configuration and its tensors.
fn directory(change: impl FnOnce(&mut serde_json::Value, &mut Tensors)) -> Result<(), String> {
    let mut config = serde_json::json!({
        "model_type": "qwen3_5_text", "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1,
        "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": N_VOCAB,
        "max_position_embeddings": 64, "rms_norm_eps": 1e-6, "tie_word_embeddings": true, "hidden_act": "silu",
        "linear_conv_kernel_dim": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
        "linear_num_key_heads": 2, "linear_num_value_heads": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
    });
    let mut tensors = Tensors::new();
    tensors.insert("model.embed_tokens.weight".into(), ("F16", vec![N_VOCAB, 32]));
    tensors.insert("model.norm.weight".into(), ("F16", vec![32]));
    for (name, shape) in [
        ("input_layernorm.weight", vec![32]),
        ("post_attention_layernorm.weight", vec![32]),
        ("linear_attn.in_proj_qkv.weight", vec![48, 32]),
        ("linear_attn.in_proj_z.weight", vec![16, 32]),
        ("linear_attn.in_proj_b.weight", vec![2, 32]),
        ("linear_attn.in_proj_a.weight", vec![2, 32]),
        ("linear_attn.conv1d.weight", vec![48, 1, 4]),
        ("linear_attn.A_log", vec![2]),
        ("linear_attn.dt_bias", vec![2]),
        ("linear_attn.norm.weight", vec![8]),
        ("linear_attn.out_proj.weight", vec![32, 16]),
        ("mlp.gate_proj.weight", vec![32, 32]),
        ("mlp.up_proj.weight", vec![32, 32]),
        ("mlp.down_proj.weight", vec![32, 32]),
    ] {
        tensors.insert(format!("model.layers.0.{name}"), ("F16", shape));
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
fn what_is_wrong_with_a_hybrids_directory_is_named() {
    assert_eq!(directory(|_, _| ()), Ok(()));
    let tensor = |name: &'static str, ty: &'static str, shape: &[usize]| {
        let shape = shape.to_vec();
        directory(|_, tensors| {
            tensors.insert(format!("model.layers.0.linear_attn.{name}"), (ty, shape));
        })
        .unwrap_err()
    };
    assert_eq!(
        tensor("conv1d.weight", "F16", &[48, 2, 4]),
        "tensor \"model.layers.0.linear_attn.conv1d.weight\" has shape [48, 2, 4]: expected [channels, 1, taps] or \
         [channels, taps, 1]"
    );
    assert_eq!(
        tensor("A_log", "F16", &[2, 1]),
        "tensor \"model.layers.0.linear_attn.A_log\" has shape [2, 1]: expected one dimension"
    );
    assert!(
        tensor("A_log", "I64", &[2]).starts_with("tensor \"model.layers.0.linear_attn.A_log\" has type I64")
    );
    assert_eq!(
        tensor("conv1d.weight", "F16", &[47, 1, 4]),
        "tensor blk.0.ssm_conv1d.weight: expected shape [4, 48] (inputs first), got [4, 47]"
    );
    let field = |name: &'static str, value: serde_json::Value| directory(|config, _| config[name] = value);
    for (name, value, message) in [
        (
            "attn_output_gate",
            false.into(),
            "DIR/config.json: attn_output_gate = false is not supported; supported: true",
        ),
        (
            "attention_bias",
            true.into(),
            "DIR/config.json: attention_bias = true is not supported; supported: false",
        ),
        (
            "layer_types",
            serde_json::json!(["linear_attention", "sliding_attention"]),
            "DIR/config.json: layer_types is a list of 2: expected a list of linear_attention and full_attention",
        ),
        (
            "linear_num_key_heads",
            0.into(),
            "DIR/config.json: linear_num_key_heads is 0: expected a number from 1 to 1048575",
        ),
        (
            "linear_num_key_heads",
            3.into(),
            "qwen35.ssm.time_step_rank = 2: expected a multiple of qwen35.ssm.group_count (3)",
        ),
    ] {
        assert_eq!(field(name, value), Err(message.to_owned()), "{name}");
    }
    let rotated =
        |part: f64| directory(|config, _| config["rope_parameters"]["partial_rotary_factor"] = part.into());
    assert_eq!(rotated(1.0), Ok(()));
    for part in [0.05, 1.5] {
        assert!(
            rotated(part).unwrap_err().contains("a part of 16 elements that is an even number of them"),
            "{part}"
        );
    }
    assert!(rotated(-1.0).unwrap_err().contains("a positive number"));
    let moe = field("model_type", "qwen3_5_moe_text".into()).unwrap_err();
    assert_eq!(moe, "DIR/config.json: num_local_experts is missing: expected a whole number");
}
