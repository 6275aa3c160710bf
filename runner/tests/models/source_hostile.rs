//! Model directories that no honest program writes: every kind is an error that names file, field and number.

use std::fs;
use std::sync::Arc;

use crate::source_support::{Directory, N_VOCAB, byte_level, config, safetensors, tensors, with_header};
use halfbyte::model::Transformer;
use halfbyte::source;
use halfbyte_tokenizer::{Tokenizer, TokenizerSpec};
use serde_json::{Value, json};

/// Everything that an error says, causes included, the directory left out.
fn chain(error: &dyn std::error::Error, directory: &Directory) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text.replace(&format!("{}/", directory.path().display()), "")
        .replace(&directory.path().display().to_string(), "DIR")
}

/// What is said of a directory, the model and the tokenizer in it.
#[track_caller]
fn refusal(directory: &Directory) -> String {
    let file = match source::open(directory.path()) {
        Ok(file) => file,
        Err(error) => return chain(&error, directory),
    };
    if let Err(error) = Transformer::new(Arc::clone(&file)) {
        return chain(&error, directory);
    }
    let spec = TokenizerSpec::from_metadata(file.metadata());
    chain(&spec.and_then(|spec| Tokenizer::new(&spec)).unwrap_err(), directory)
}

#[track_caller]
fn refused(directory: &Directory, message: &str) {
    assert_eq!(refusal(directory), message);
}

#[test]
fn the_helpers_make_a_valid_model() {
    let directory = Directory::new();
    let file = source::open(directory.path()).unwrap();
    assert_eq!(Transformer::new(Arc::clone(&file)).unwrap().description().n_vocab, N_VOCAB);
}

#[test]
fn headers() {
    let with = |content: Vec<u8>| {
        let directory = Directory::new();
        directory.write("model.safetensors", content);
        refusal(&directory)
    };
    assert_eq!(with(vec![]), "model.safetensors: the file is empty: expected a safetensors file");
    assert_eq!(with(vec![1, 2, 3]), "model.safetensors: expected 8 bytes of header length, got 3");
    assert_eq!(
        with((1_u64 << 60).to_le_bytes().to_vec()),
        "model.safetensors: the header's length is 1152921504606846976: expected at most 16777216"
    );
    assert_eq!(
        with(100_u64.to_le_bytes().to_vec()),
        "model.safetensors: the header has 100 bytes, but the file has 0 left"
    );
    assert!(with(with_header("{\"a\":")).starts_with("model.safetensors: its header: EOF while parsing"));
    assert!(with(with_header("[]")).starts_with("model.safetensors: its header: invalid type"));
    assert!(with(with_header(&"[".repeat(100_000))).starts_with("model.safetensors: its header: "));
    let one = |tensor: Value, data: usize| {
        let mut file = with_header(&json!({ "a": tensor }).to_string());
        file.resize(file.len() + data, 0);
        with(file)
    };
    let tensor = |dtype: &str, shape: Value, offsets: Value| json!({"dtype": dtype, "shape": shape, "data_offsets": offsets});
    for (text, tensor, data) in [
        ("invalid offset", tensor("F32", json!([1]), json!([4, 8])), 8),
        ("invalid offset", tensor("F32", json!([1]), json!([4, 0])), 8),
        ("invalid shape", tensor("F32", json!([2]), json!([0, 4])), 4),
        ("overflow", tensor("F32", json!([1_u64 << 40, 1_u64 << 40]), json!([0, 4])), 4),
        ("overflow", tensor("F32", json!([u64::MAX]), json!([0, 4])), 4),
        ("unknown variant", tensor("F3", json!([1]), json!([0, 4])), 4),
        ("invalid type", tensor("F32", json!("x"), json!([0, 4])), 4),
        ("invalid value", tensor("F32", json!([-1]), json!([0, 4])), 4),
        ("lists 4 bytes of tensors, but the file has 5", tensor("F32", json!([1]), json!([0, 4])), 5),
        ("lists 4 bytes of tensors, but the file has 3", tensor("F32", json!([1]), json!([0, 4])), 3),
    ] {
        let message = one(tensor, data);
        assert!(message.starts_with("model.safetensors: its header"), "{message}");
        assert!(message.contains(text), "{message}: expected {text}");
    }
}

/// Ranges that add up to 2^64 and a little: a sum that wraps is the length of the file.
#[test]
fn sizes_that_wrap_together() {
    let step = 1_u64 << 60;
    let mut header = String::from("{");
    for i in 0..16 {
        let end = if i == 15 { u64::MAX - 7 } else { (i + 1) * step };
        let size = end - i * step;
        header += &format!(
            "\"t{i:02}\":{{\"dtype\":\"U8\",\"shape\":[{size}],\"data_offsets\":[{},{end}]}},",
            i * step
        );
    }
    header.pop();
    header += "}";
    // 2^64 - 8 bytes of tensors and 8 of length: added up in 64 bits, the file is as long as its header.
    let directory = Directory::new();
    directory.write("model.safetensors", with_header(&header));
    let message = refusal(&directory);
    assert!(message.contains("lists 18446744073709551608 bytes of tensors, but the file has 0"), "{message}");
}

#[test]
fn overlapping_tensors_and_gaps() {
    for (offsets, length) in [([[0, 4], [0, 4]], 4), ([[0, 4], [2, 6]], 6), ([[0, 4], [8, 12]], 12)] {
        let tensor = |at: [usize; 2]| json!({"dtype": "F32", "shape": [1], "data_offsets": at});
        let mut file = with_header(&json!({"a": tensor(offsets[0]), "b": tensor(offsets[1])}).to_string());
        file.resize(file.len() + length, 0);
        let directory = Directory::new();
        directory.write("model.safetensors", file);
        assert!(refusal(&directory).contains("invalid offset for tensor"), "{}", refusal(&directory));
    }
}

#[test]
fn tensors_of_a_model() {
    let with = |change: &dyn Fn(&mut crate::source_support::Tensors)| {
        let directory = Directory::new();
        let mut all = tensors();
        change(&mut all);
        directory.write("model.safetensors", safetensors(&all));
        refusal(&directory)
    };
    let name = "model.layers.0.mlp.up_proj.weight";
    assert_eq!(
        with(&|t| _ = t.insert(name.into(), ("F64", vec![32, 32]))),
        "tensor \"model.layers.0.mlp.up_proj.weight\" has type F64; supported: F32, F16, BF16, and MLX's affine 4 and 8 bits"
    );
    assert_eq!(
        with(&|t| _ = t.insert(name.into(), ("F16", vec![32, 31]))),
        "tensor blk.0.ffn_up.weight: expected shape [32, 32] (inputs first), got [31, 32]"
    );
    assert_eq!(
        with(&|t| _ = t.insert(name.into(), ("F16", vec![0, 32]))),
        "tensor \"blk.0.ffn_up.weight\" has dimensions 32 x 0: expected every one to be at least 1"
    );
    assert_eq!(
        with(&|t| _ = t.insert(name.into(), ("F16", vec![]))),
        "tensor \"blk.0.ffn_up.weight\" has 0 dimensions: expected 1 to 4"
    );
    assert!(with(&|t| _ = t.remove(name)).contains("tensor \"blk.0.ffn_up.weight\" is missing"));
    assert_eq!(
        with(&|t| _ = t.insert("model.layers.0.mlp.experts.0.weight".into(), ("F16", vec![1]))),
        "tensor \"model.layers.0.mlp.experts.0.weight\" is not part of architecture llama as supported here"
    );
    assert_eq!(
        with(&|t| _ = t.insert("model.layers.1.mlp.up_proj.weight".into(), ("F16", vec![1]))),
        "tensor blk.1.ffn_up.weight is not part of architecture llama as supported here"
    );
    assert!(
        with(&|t| _ = t.insert("model.embed_tokens.weight".into(), ("F16", vec![599, 32])))
            .starts_with("config.json: vocab_size is 600: expected 599")
    );
    // Names that a terminal would obey are escaped.
    let message = with(&|t| _ = t.insert("\u{1b}[2Jx".into(), ("F16", vec![1])));
    assert!(message.contains(r"\u{1b}[2Jx") && !message.contains('\u{1b}'), "{message}");
}

#[test]
fn configurations() {
    let with = |field: &str, value: Value| {
        let directory = Directory::new();
        let mut config = config();
        config[field] = value;
        directory.write("config.json", config.to_string());
        refusal(&directory)
    };
    for (field, value, message) in [
        (
            "model_type",
            json!("mamba"),
            "config.json: model_type = \"mamba\" is not supported; supported: llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, qwen3_5, qwen3_5_text, qwen3_5_moe, qwen3_5_moe_text, exaone, exaone4, gemma, gemma2, gemma3_text, gemma3, glm4, gpt_oss, granite, granitemoe, lfm2, lfm2_moe, ministral3, mistral3, olmo2, olmo3, olmoe, phi3, seed_oss, smollm3",
        ),
        (
            "model_type",
            Value::Null,
            "config.json: model_type = missing is not supported; supported: llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, qwen3_5, qwen3_5_text, qwen3_5_moe, qwen3_5_moe_text, exaone, exaone4, gemma, gemma2, gemma3_text, gemma3, glm4, gpt_oss, granite, granitemoe, lfm2, lfm2_moe, ministral3, mistral3, olmo2, olmo3, olmoe, phi3, seed_oss, smollm3",
        ),
        ("model_type", json!(3), "config.json: model_type is 3: expected a string"),
        (
            "hidden_size",
            json!(-1),
            "config.json: hidden_size is -1: expected a whole number from 0 to 4294967295",
        ),
        (
            "hidden_size",
            json!(1_u64 << 40),
            "config.json: hidden_size is 1099511627776: expected a whole number from 0 to 4294967295",
        ),
        (
            "hidden_size",
            json!(1.5),
            "config.json: hidden_size is 1.5: expected a whole number from 0 to 4294967295",
        ),
        (
            "hidden_size",
            json!("64"),
            "config.json: hidden_size is \"64\": expected a whole number from 0 to 4294967295",
        ),
        ("hidden_size", json!(0), "config.json: hidden_size is 0: expected at least 1"),
        (
            "hidden_size",
            json!(33),
            "config.json: hidden_size is 33: expected a multiple of num_attention_heads, 2",
        ),
        ("hidden_size", Value::Null, "config.json: hidden_size is missing: expected a whole number"),
        (
            "num_hidden_layers",
            json!(u32::MAX),
            "llama.block_count = 4294967295: expected a number from 1 to 1048576",
        ),
        (
            "num_key_value_heads",
            json!(3),
            "llama.attention.head_count = 2: expected a multiple of llama.attention.head_count_kv (3)",
        ),
        ("head_dim", json!(15), "config.json: head_dim is 15: expected an even number, and it is 15"),
        (
            "vocab_size",
            json!(u32::MAX),
            "config.json: vocab_size is 4294967295: expected 600, the rows of model.embed_tokens.weight",
        ),
        ("rms_norm_eps", json!(0), "config.json: rms_norm_eps is 0: expected a positive number"),
        (
            "rms_norm_eps",
            json!(1e300),
            format!("config.json: rms_norm_eps is {}: expected a finite number", json!(1e300)).as_str(),
        ),
        ("rope_theta", json!(-1), "config.json: rope_theta is -1: expected a positive number"),
        ("hidden_act", json!("gelu"), "config.json: hidden_act = \"gelu\" is not supported; supported: silu"),
        (
            "use_sliding_window",
            json!(true),
            "config.json: use_sliding_window = true is not supported; supported: false",
        ),
        ("tie_word_embeddings", json!(1), "config.json: tie_word_embeddings is 1: expected true or false"),
        (
            "tie_word_embeddings",
            json!(false),
            "tensor \"lm_head.weight\" is missing (the file has 11 tensors)",
        ),
        (
            "rope_scaling",
            json!({"type": "ntk"}),
            "config.json: rope_scaling.type = \"ntk\" is not supported; supported: default, linear, dynamic, yarn, longrope, llama3",
        ),
        (
            "rope_scaling",
            json!({"type": "yarn", "factor": -4}),
            "config.json: rope_scaling.factor is -4: expected a positive number",
        ),
        (
            "rope_scaling",
            json!({"type": "longrope", "original_max_position_embeddings": 0}),
            "config.json: rope_scaling.original_max_position_embeddings is 0: expected at least 1",
        ),
        (
            "rope_scaling",
            json!({"type": "longrope", "short_factor": [1, 1], "long_factor": [1]}),
            "config.json: rope_scaling.long_factor is a list of 1: expected 8 positive numbers",
        ),
        (
            "rope_scaling",
            json!({"type": "longrope", "long_mscale": 1.2}),
            "config.json: rope_scaling.long_mscale = 1.2 is not supported; supported: no such field",
        ),
        (
            "rope_scaling",
            json!({"type": "linear"}),
            "config.json: rope_scaling.factor is missing: expected a positive number",
        ),
        (
            "rope_scaling",
            json!({"rope_type": "llama3", "factor": 8, "low_freq_factor": 4, "high_freq_factor": 4}),
            "config.json: rope_scaling.high_freq_factor is 4: expected more than low_freq_factor, 4",
        ),
        ("rope_scaling", json!("x"), "config.json: rope_scaling is \"x\": expected an object"),
        (
            "rope_scaling",
            json!({"rope_theta": 0}),
            "config.json: rope_scaling.rope_theta is 0: expected a positive number",
        ),
        (
            "rope_parameters",
            json!({"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}),
            "config.json: rope_parameters.sliding_attention = an object is not supported; supported: the same rotations in all \
             layers, as full_attention has them",
        ),
        (
            "rope_parameters",
            json!({"rope_type": "default", "partial_rotary_factor": 0.2}),
            "config.json: rope_parameters.partial_rotary_factor is 0.2: expected a part of 16 elements that is an even number of them",
        ),
        (
            "quantization",
            json!({"group_size": 48, "bits": 4}),
            "config.json: quantization.group_size = 48 is not supported; supported: 32, 64, 128",
        ),
        (
            "quantization",
            json!({"group_size": 64, "bits": 3}),
            "config.json: quantization.bits = 3 is not supported; supported: 4, 8",
        ),
        (
            "quantization",
            json!({"group_size": 64}),
            "config.json: quantization.bits is missing: expected a whole number",
        ),
        (
            "quantization",
            json!({"group_size": 32, "bits": 4, "mode": "mxfp4"}),
            "config.json: quantization.mode = \"mxfp4\" is not supported; supported: affine",
        ),
        (
            "quantization_config",
            json!({"quant_method": "gptq", "bits": 4}),
            "config.json: quantization_config.quant_method = \"gptq\" is not supported; supported: MLX's affine quantization (an object `quantization` with group_size and bits)",
        ),
    ] {
        assert_eq!(with(field, value), message);
    }
    let directory = Directory::new();
    directory.write("config.json", "{\"a\": ".repeat(100_000));
    assert!(
        refusal(&directory).starts_with("config.json: recursion limit exceeded"),
        "{}",
        refusal(&directory)
    );
    directory.write("config.json", vec![b' '; (1 << 20) + 1]);
    refused(&directory, "config.json has 1048577 bytes: expected at most 1048576");
    directory.write("config.json", b"\xff\xfe");
    assert!(refusal(&directory).starts_with("config.json: expected value"), "{}", refusal(&directory));
    fs::remove_file(directory.file("config.json")).unwrap();
    refused(
        &directory,
        "DIR is a directory without config.json: expected a GGUF file, or a directory with config.json and model.safetensors",
    );
}

#[test]
fn indexes() {
    let directory = Directory::new();
    let index =
        |map: Value| directory.write("model.safetensors.index.json", json!({"weight_map": map}).to_string());
    let all =
        |file: &str| -> Value { tensors().keys().map(|name| (name.clone(), Value::from(file))).collect() };
    index(all("model.safetensors"));
    source::open(directory.path()).unwrap();
    index(all("model-2.safetensors"));
    let message = refusal(&directory);
    assert!(message.starts_with("cannot open model-2.safetensors: "), "{message}");
    for outside in
        ["../model.safetensors", "/etc/passwd", "a/b.safetensors", "..", ".", "", "a\\b", "c:x", "a\0b"]
    {
        index(json!({"model.norm.weight": outside}));
        let message = refusal(&directory);
        assert!(
            message.starts_with("model.safetensors.index.json: the file ")
                && message.contains("is not a name"),
            "{outside:?}: {message}"
        );
    }
    index(json!({"model.norm.weight": "model.safetensors", "absent": "model.safetensors"}));
    refused(
        &directory,
        "tensor \"absent\" is not in model.safetensors, where model.safetensors.index.json says that it is",
    );
    index(json!({}));
    refused(
        &directory,
        "model.safetensors.index.json: weight_map is an object: expected at least one tensor",
    );
    index(json!({"a": 1}));
    refused(&directory, "model.safetensors.index.json: weight_map.a is 1: expected the name of a file");
    index(json!("x"));
    refused(&directory, "model.safetensors.index.json: weight_map is \"x\": expected an object");
    let many: Value = (0..1025).map(|i| (format!("t{i}"), Value::from(format!("f{i}")))).collect();
    index(many);
    refused(&directory, "model.safetensors.index.json: the number of files is 1025: expected at most 1024");
    directory.write("second.safetensors", fs::read(directory.file("model.safetensors")).unwrap());
    index(
        json!({"model.norm.weight": "model.safetensors", "model.embed_tokens.weight": "second.safetensors"}),
    );
    let message = refusal(&directory);
    assert!(message.contains("is in model.safetensors and in second.safetensors"), "{message}");
}

#[test]
fn affine_parts() {
    let quantized = |codes: (&'static str, Vec<usize>),
                     scales: (&'static str, Vec<usize>),
                     biases: Option<(&'static str, Vec<usize>)>| {
        let directory = Directory::new();
        let mut config = config();
        config["quantization"] = json!({"group_size": 32, "bits": 4});
        directory.write("config.json", config.to_string());
        let mut all = tensors();
        let module = "model.layers.0.mlp.up_proj";
        all.insert(format!("{module}.weight"), codes);
        all.insert(format!("{module}.scales"), scales);
        if let Some(biases) = biases {
            all.insert(format!("{module}.biases"), biases);
        }
        directory.write("model.safetensors", safetensors(&all));
        match source::open(directory.path()) {
            Ok(file) => {
                Transformer::new(Arc::clone(&file)).map(|_| String::new()).unwrap_or_else(|e| e.to_string())
            }
            Err(error) => error.to_string(),
        }
    };
    let (codes, one) = (("U32", vec![32, 4]), ("F16", vec![32, 1]));
    let tensor = "tensor \"model.layers.0.mlp.up_proj.weight\": ";
    assert_eq!(quantized(codes.clone(), one.clone(), Some(one.clone())), "");
    for (codes, scales, biases, message) in [
        (("I64", vec![32, 4]), one.clone(), one.clone(), "the type of its codes is I64: expected U32"),
        (
            ("U32", vec![32]),
            one.clone(),
            one.clone(),
            "the shape of its codes is [32]: expected two or three dimensions",
        ),
        (
            ("U32", vec![32, 3]),
            one.clone(),
            one.clone(),
            "the shape of its codes is [32, 3]: expected rows of whole groups of 32, 4 bits each, as config.json says",
        ),
        (
            ("U32", vec![32, 0]),
            one.clone(),
            one.clone(),
            "the shape of its codes is [32, 0]: expected rows of whole groups of 32, 4 bits each, as config.json says",
        ),
        (
            codes.clone(),
            ("F16", vec![32, 2]),
            one.clone(),
            "the shape of its scales is [32, 2]: expected [32, 1], one a group of 32 by config.json",
        ),
        (
            codes.clone(),
            one.clone(),
            ("F16", vec![16, 2]),
            "the shape of its biases is [16, 2]: expected [32, 1], one a group of 32 by config.json",
        ),
        (
            codes.clone(),
            ("U8", vec![32, 1]),
            one.clone(),
            "the type of its scales is U8: expected F16, BF16 or F32",
        ),
        (
            codes.clone(),
            one.clone(),
            ("F32", vec![32, 1]),
            "the type of its biases is F32: expected that of its scales, F16",
        ),
    ] {
        assert_eq!(quantized(codes, scales, Some(biases)), format!("{tensor}{message}"));
    }
    // Without biases the codes are a tensor of a type that nothing is computed with.
    assert!(quantized(codes, one, None).contains("has type U32"));
}

#[test]
fn tokenizers() {
    let good = || byte_level(json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut file = good();
        change(&mut file);
        refusal(&Directory::with_tokenizer(&file))
    };
    // What is no tokenizer of the `tokenizers` crate.
    assert!(with(&|f| f["model"]["type"] = "Nothing".into()).contains("tokenizer.json: "));
    assert!(with(&|f| f["pre_tokenizer"] = json!({"type": "Nothing"})).contains("tokenizer.json: "));
    assert!(with(&|f| f["normalizer"] = json!({"type": "Nothing"})).contains("tokenizer.json: "));
    assert_eq!(
        with(&|f| f["model"]["vocab"]["zz"] = 600.into()),
        "tokenizer.json: model.vocab is \"zz\": expected an id below 600, the model's vocabulary, and not 600"
    );
    assert_eq!(
        with(&|f| f["added_tokens"][0]["id"] = 4_294_967_295_u32.into()),
        "tokenizer.json: added_tokens is \"<s>\": expected an id below 600, the model's vocabulary, and not 4294967295"
    );
    assert!(with(&|f| f["model"]["vocab"]["zz"] = 0.into()).contains("expected another id than 0, which "));
    assert!(
        with(&|f| f["model"]["vocab"]["zz"] = (-1).into())
            .starts_with("tokenizer.json: invalid value: integer `-1`")
    );
    assert!(with(&|f| f["model"]["vocab"] = json!([1])).starts_with("tokenizer.json: invalid type: integer"));
    assert!(with(&|f| f["model"]["merges"] = json!([1])).starts_with("tokenizer.json: data did not match"));
    assert!(with(&|f| f["model"]["merges"] = json!(["nospace"])).contains("merge 0 is \"nospace\""));
    assert!(with(&|f| f["model"]["merges"] = json!(["a zzzz"])).contains("merge 0 needs the token \"zzzz\""));

    let directory = Directory::with_tokenizer(&good());
    directory.write("generation_config.json", json!({"eos_token_id": [600]}).to_string());
    assert!(refusal(&directory).contains("is 600: expected less than 600"), "{}", refusal(&directory));
    directory.write("generation_config.json", json!({"eos_token_id": "x"}).to_string());
    refused(
        &directory,
        "generation_config.json: eos_token_id is \"x\": expected a token id or a list of at most 1024",
    );
    directory.write("generation_config.json", "{}");
    directory.write("tokenizer_config.json", json!({"chat_template": 1}).to_string());
    assert!(
        refusal(&directory)
            .starts_with("tokenizer_config.json: chat_template is 1: expected a string, or a list")
    );
    directory.write("tokenizer_config.json", json!({"bos_token": ["<s>"]}).to_string());
    assert!(
        refusal(&directory).starts_with("tokenizer_config.json: bos_token is a list of 1: expected a string")
    );
    directory.write("tokenizer_config.json", "{}");
    directory.write("chat_template.jinja", vec![b'x'; (256 << 10) + 1]);
    refused(&directory, "chat_template.jinja has 262145 bytes: expected at most 262144");
    directory.write("chat_template.jinja", b"\xff");
    assert!(refusal(&directory).starts_with("chat_template.jinja: invalid utf-8"));
}

#[cfg(unix)]
#[test]
fn special_files_never_block() {
    for name in ["config.json", "model.safetensors", "tokenizer.json", "model.safetensors.index.json"] {
        let directory = Directory::new();
        let path = directory.file(name);
        let _ = fs::remove_file(&path);
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let message = refusal(&directory);
        assert!(message.starts_with(&format!("{name} is a pipe: expected a regular file")), "{message}");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        let message = refusal(&directory);
        assert!(message.starts_with(&format!("{name} is a directory: expected a regular file")), "{message}");
    }
}
