//! Layers that no architecture here has, described by hand: windows, soft caps, sinks, biases everywhere, norms after a
//! layer's halves and over all heads, layers without positions, heads of different sizes, several matrices in one tensor,
//! factors of all kinds. They are compared with float64 arithmetic.

use std::collections::BTreeMap;
use std::f64::consts::PI;
use std::num::NonZero;
use std::sync::Arc;

use halfbyte::model::{
    Activation, ActivationType, Attention, Compute, CpuSession, Dense, Description, FeedForward, Layer,
    Linear, Mixer, Norm, Rope, RopeId, Scales, Sequence, SessionOptions, Temperature, Transformer, VectorId,
};
use halfbyte::source::ModelFile;
use halfbyte_attention::KvType;
use halfbyte_cpu_kernels::{Isa, RopeOrder};
use halfbyte_gguf::{Gguf, GgufWriter, Metadata, TensorInfo, TensorType};
use halfbyte_testing::Rng;

const WIDTH: usize = 32;
const N_VOCAB: usize = 48;
const HIDDEN: usize = 64;
const EXACT: SessionOptions =
    SessionOptions { context: 64, activations: ActivationType::F32, kv_type: KvType::F32, chunk: 5 };

/// Heads, key and value heads, their size, window, soft cap, and whether there are rotations and sinks.
type Shape = (usize, usize, usize, Option<usize>, Option<f32>, bool, bool);

const SHAPES: [Shape; 3] = [
    (4, 2, 8, Some(3), None, true, true),
    (2, 2, 16, None, Some(2.0), false, false),
    (6, 2, 8, Some(5), Some(30.0), true, true),
];

fn norm(d: &mut Description, name: &str, len: usize) -> Norm {
    Norm { weight: d.add_vector(name, len), eps: 1e-5 }
}

fn linear(d: &mut Description, name: &str, rows: usize, cols: usize) -> Linear {
    let matrix = d.add_matrix(format!("{name}.weight"), rows, cols);
    Linear { matrix, bias: Some(d.add_vector(format!("{name}.bias"), rows)) }
}

fn description() -> Description {
    let mut d = Description::new("by-hand", WIDTH, N_VOCAB);
    d.context = 64;
    d.scales = Scales { embedding: 2.5, residual: 0.7, logits: 0.5, logit_cap: Some(3.0) };
    d.norm = norm(&mut d, "output_norm.weight", WIDTH);
    d.output = d.add_matrix("output.weight", N_VOCAB, WIDTH);
    let frequencies = |base: f64, pairs: usize| (0..pairs).map(|i| base.powf(-(i as f64) / 4.0)).collect();
    d.ropes = vec![
        Rope { magnitude: 1.3, ..Rope::new(frequencies(10_000.0, 4), RopeOrder::Halves) },
        // Half of a head is rotated.
        Rope::new(frequencies(100.0, 2), RopeOrder::Adjacent),
    ];
    for (i, (n_heads, n_kv_heads, head_dim, window, soft_cap, rotates, sinks)) in
        SHAPES.into_iter().enumerate()
    {
        let name = |part: &str| format!("blk.{i}.{part}");
        let mixer_norm = (i != 1).then(|| norm(&mut d, &name("attn_norm.weight"), WIDTH));
        // One layer has them in one tensor.
        let rows = [n_heads, n_kv_heads, n_kv_heads].map(|heads| heads * head_dim);
        let [q, k, v] = if i == 2 {
            let total = rows.iter().sum();
            let mut part = |start: usize, n: usize| {
                let matrix = d.add_rows(name("attn_qkv.weight"), total, start..start + n, WIDTH);
                let bias = d.add_vector(name("attn_qkv.bias"), total);
                d.vectors[bias.0].range = start..start + n;
                Linear { matrix, bias: Some(bias) }
            };
            [part(0, rows[0]), part(rows[0], rows[1]), part(rows[0] + rows[1], rows[2])]
        } else {
            let mut part = |part: &str, rows: usize| linear(&mut d, &name(part), rows, WIDTH);
            [part("attn_q", rows[0]), part("attn_k", rows[1]), part("attn_v", rows[2])]
        };
        let attention = Attention {
            n_heads,
            n_kv_heads,
            head_dim,
            q,
            k,
            v,
            output: linear(&mut d, &name("attn_output"), WIDTH, n_heads * head_dim),
            // Over each head, or over all of them together.
            head_norms: (i > 0).then(|| {
                let heads = if i == 1 { [n_heads, n_kv_heads] } else { [1, 1] };
                [
                    norm(&mut d, &name("attn_q_norm.weight"), heads[0] * head_dim),
                    norm(&mut d, &name("attn_k_norm.weight"), heads[1] * head_dim),
                ]
            }),
            rope: rotates.then_some(RopeId(i / 2)),
            window: window.and_then(NonZero::new),
            scale: 0.3,
            soft_cap,
            sinks: sinks.then(|| d.add_vector(name("attn_sinks.weight"), n_heads)),
            temperature: NonZero::new(5).filter(|_| i == 2).map(|length| Temperature { scale: 0.4, length }),
            gated: false,
        };
        let after_mixer = (i > 0).then(|| norm(&mut d, &name("attn_post_norm.weight"), WIDTH));
        let feed_forward_norm = Some(norm(&mut d, &name("ffn_norm.weight"), WIDTH));
        let dense = Dense {
            gate: linear(&mut d, &name("ffn_gate"), HIDDEN, WIDTH),
            up: linear(&mut d, &name("ffn_up"), HIDDEN, WIDTH),
            down: linear(&mut d, &name("ffn_down"), WIDTH, HIDDEN),
            activation: if i == 1 { Activation::GeluTanh } else { Activation::Silu },
            width: HIDDEN,
        };
        let after_feed_forward = (i > 0).then(|| norm(&mut d, &name("ffn_post_norm.weight"), WIDTH));
        d.layers.push(Layer {
            mixer_norm,
            mixer: Mixer::Attention(attention),
            after_mixer,
            feed_forward_norm,
            feed_forward: FeedForward::Dense(dense),
            after_feed_forward,
        });
    }
    d
}

/// A file with random weights for everything that `d` names.
fn file(d: &Description, rng: &mut Rng) -> Gguf {
    let matrices = d.matrices.iter().map(|m| (&m.tensor, vec![m.cols, m.tensor_rows]));
    let vectors = d.vectors.iter().map(|v| (&v.tensor, vec![v.tensor_len]));
    // A tensor of several parts is there once.
    let dims: BTreeMap<&String, Vec<usize>> = matrices.chain(vectors).collect();
    let infos: Vec<TensorInfo> = dims
        .into_iter()
        .map(|(name, dims)| TensorInfo::new(name.clone(), TensorType::F32, &dims).unwrap())
        .collect();
    let mut writer = GgufWriter::new(Vec::new(), &Metadata::new(), &infos).unwrap();
    for info in &infos {
        let size = if info.dims.len() == 1 { 1.0 } else { 0.4 };
        let values = rng.f32s(info.n_elements(), size);
        writer.write_tensor(&info.name, bytemuck::cast_slice(&values)).unwrap();
    }
    Gguf::from_vec(writer.finish().unwrap()).unwrap()
}

/// The forward pass in float64, written from the formulas.
struct Reference<'a> {
    d: &'a Description,
    gguf: &'a Gguf,
}

impl Reference<'_> {
    fn values(&self, name: &str) -> Vec<f64> {
        let info = self.gguf.tensor(name).unwrap();
        self.gguf.view::<f32>(info).unwrap().iter().map(|&x| f64::from(x)).collect()
    }

    fn vector(&self, id: VectorId) -> Vec<f64> {
        let info = &self.d.vectors[id.0];
        self.values(&info.tensor)[info.range.clone()].to_vec()
    }

    fn norm(&self, norm: Option<Norm>, x: &[f64]) -> Vec<f64> {
        let Some(Norm { weight, eps }) = norm else { return x.to_vec() };
        let mean = x.iter().map(|x| x * x).sum::<f64>() / x.len() as f64;
        let scale = 1.0 / (mean + f64::from(eps)).sqrt();
        x.iter().zip(self.vector(weight)).map(|(x, w)| x * scale * w).collect()
    }

    fn times(&self, linear: Linear, x: &[f64]) -> Vec<f64> {
        let info = self.d.matrix(linear.matrix);
        let whole = self.values(&info.tensor);
        let weights = &whole[info.rows.start * info.cols..info.rows.end * info.cols];
        let bias = linear.bias.map(|id| self.vector(id));
        let rows =
            weights.chunks_exact(x.len()).map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>());
        rows.enumerate().map(|(i, y)| y + bias.as_ref().map_or(0.0, |bias| bias[i])).collect()
    }

    fn rotated(&self, rope: Option<RopeId>, head: &mut [f64], position: usize) {
        let Some(RopeId(id)) = rope else { return };
        let Rope { frequencies, order, magnitude, .. } = &self.d.ropes[id];
        for (i, f) in frequencies.iter().enumerate() {
            let (a, b) = match order {
                RopeOrder::Adjacent => (2 * i, 2 * i + 1),
                RopeOrder::Halves => (i, i + frequencies.len()),
            };
            let (sin, cos) = (position as f64 * f).sin_cos();
            let (sin, cos) = (sin * magnitude, cos * magnitude);
            (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
        }
    }

    fn attention(&self, a: &Attention, x: &[Vec<f64>]) -> Vec<Vec<f64>> {
        let dim = a.head_dim;
        let project = |linear: Linear, norm: Option<Norm>, rotate: bool| -> Vec<Vec<f64>> {
            let rows = x.iter().enumerate().map(|(position, x)| {
                let mut y = self.times(linear, x);
                let normed = norm.map_or(dim, |norm| self.d.vectors[norm.weight.0].tensor_len);
                for part in y.chunks_exact_mut(normed) {
                    part.copy_from_slice(&self.norm(norm, part));
                }
                if rotate {
                    y.chunks_exact_mut(dim).for_each(|head| self.rotated(a.rope, head, position));
                }
                y
            });
            rows.collect()
        };
        let [q_norm, k_norm] = a.head_norms.map_or([None; 2], |norms| norms.map(Some));
        let (q, k, v) = (project(a.q, q_norm, true), project(a.k, k_norm, true), project(a.v, None, false));
        let sinks = a.sinks.map(|id| self.vector(id));
        let row = |position: usize| {
            let mut out = Vec::new();
            for head in 0..a.n_heads {
                let kv = head / (a.n_heads / a.n_kv_heads) * dim;
                let first = a.window.map_or(0, |window| (position + 1).saturating_sub(window.get()));
                let scores = (first..=position).map(|j| {
                    let dot: f64 = q[position][head * dim..][..dim]
                        .iter()
                        .zip(&k[j][kv..][..dim])
                        .map(|(q, k)| q * k)
                        .sum();
                    let warmth = a.temperature.map_or(1.0, |Temperature { scale, length }| {
                        1.0 + f64::from(scale) * (1.0 + (position / length) as f64).ln()
                    });
                    let score = dot * f64::from(a.scale) * warmth;
                    a.soft_cap.map_or(score, |cap| f64::from(cap) * (score / f64::from(cap)).tanh())
                });
                let weights: Vec<f64> = scores.map(f64::exp).collect();
                let sum = weights.iter().sum::<f64>() + sinks.as_ref().map_or(0.0, |sinks| sinks[head].exp());
                let sums = (0..dim)
                    .map(|i| weights.iter().zip(first..).map(|(w, j)| w * v[j][kv + i]).sum::<f64>() / sum);
                out.extend(sums);
            }
            self.times(a.output, &out)
        };
        (0..x.len()).map(row).collect()
    }

    /// The logits after every token.
    fn logits(&self, ids: &[u32]) -> Vec<Vec<f64>> {
        let embedding = self.values("token_embd.weight");
        let x: Vec<Vec<f64>> =
            ids.iter().map(|&id| embedding[id as usize * WIDTH..][..WIDTH].to_vec()).collect();
        let Scales { embedding, residual, logits, logit_cap } = self.d.scales;
        let times =
            |factor: f32, x: Vec<f64>| x.into_iter().map(|x| x * f64::from(factor)).collect::<Vec<_>>();
        let mut x: Vec<Vec<f64>> = x.into_iter().map(|x| times(embedding, x)).collect();
        for layer in &self.d.layers {
            let Mixer::Attention(a) = &layer.mixer else { panic!("attention") };
            let FeedForward::Dense(dense) = &layer.feed_forward else { panic!("a dense network") };
            let normed: Vec<_> = x.iter().map(|x| self.norm(layer.mixer_norm, x)).collect();
            for (x, y) in x.iter_mut().zip(self.attention(a, &normed)) {
                add(x, &times(residual, self.norm(layer.after_mixer, &y)));
            }
            for x in &mut x {
                let h = self.norm(layer.feed_forward_norm, x);
                let (gate, up) = (self.times(dense.gate, &h), self.times(dense.up, &h));
                let activated = |g: f64| match dense.activation {
                    Activation::Silu => g / (1.0 + (-g).exp()),
                    _ => g / 2.0 * (1.0 + ((2.0 / PI).sqrt() * (g + 0.044_715 * g * g * g)).tanh()),
                };
                let hidden: Vec<f64> = gate.iter().zip(&up).map(|(&g, u)| activated(g) * u).collect();
                let y = self.norm(layer.after_feed_forward, &self.times(dense.down, &hidden));
                add(x, &times(residual, y));
            }
        }
        let output = Linear { matrix: self.d.output, bias: None };
        let cap = f64::from(logit_cap.expect("a cap"));
        let capped = |x: Vec<f64>| x.into_iter().map(|x| cap * (x / cap).tanh()).collect();
        x.iter()
            .map(|x| capped(times(logits, self.times(output, &self.norm(Some(self.d.norm), x)))))
            .collect()
    }
}

fn add(x: &mut [f64], y: &[f64]) {
    x.iter_mut().zip(y).for_each(|(x, y)| *x += y);
}

fn model(seed: u64) -> (Transformer, Gguf) {
    println!("seed {seed}");
    let d = description();
    let gguf = file(&d, &mut Rng(seed));
    let copy = Gguf::from_vec(gguf.contents().collect::<Vec<_>>().concat()).unwrap();
    (Transformer::with_description(Arc::new(ModelFile::from(copy)), d).unwrap(), gguf)
}

fn ids(n: usize) -> Vec<u32> {
    (0..n).map(|i| (i * i * 7 + 3 * i) as u32 % N_VOCAB as u32).collect()
}

#[test]
fn described_layers_are_computed_as_float64_computes_them() {
    let (model, gguf) = model(20_261_130);
    let ids = ids(23);
    let expected = Reference { d: model.description(), gguf: &gguf }.logits(&ids);
    for isa in Isa::available() {
        let compute = Compute::new(2).unwrap().with_isa(isa);
        let mut session = CpuSession::new(&model, &compute, EXACT).unwrap();
        let mut worst = 0.0_f64;
        session
            .feed_all(&ids, |i, logits| {
                for (got, expected) in logits.iter().zip(&expected[i]) {
                    worst = worst.max((f64::from(*got) - expected).abs());
                }
            })
            .unwrap();
        println!("{isa}: {worst:e}");
        assert!(worst < 1e-4, "{isa}: {worst:e}");
    }
}

#[test]
fn a_described_model_has_the_same_bits_in_parts_cut_saved_and_restored() {
    let (model, _) = model(7);
    let compute = Compute::new(1).unwrap();
    let ids = ids(30);
    let bits = |logits: &[f32]| logits.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let mut session = CpuSession::new(&model, &compute, EXACT).unwrap();
    let whole = bits(session.feed(&ids).unwrap());
    session.cut(11).unwrap();
    let saved = session.save().unwrap();
    assert_eq!((saved.len(), session.len()), (11, 11));
    for &id in &ids[11..29] {
        session.feed(&[id]).unwrap();
    }
    assert_eq!(bits(session.feed(&ids[29..]).unwrap()), whole);
    // Other tokens in between are gone after the restoration, also in another session.
    session.cut(2).unwrap();
    session.feed(&[1; 20]).unwrap();
    session.restore(&saved).unwrap();
    assert_eq!(bits(session.feed(&ids[11..]).unwrap()), whole);
    let mut other = CpuSession::new(&model, &compute, SessionOptions { context: 40, ..EXACT }).unwrap();
    other.restore(&saved).unwrap();
    assert_eq!(bits(other.feed(&ids[11..]).unwrap()), whole);
    let options = SessionOptions { kv_type: KvType::F16, ..EXACT };
    let error = CpuSession::new(&model, &compute, options).unwrap().restore(&saved).unwrap_err().to_string();
    assert_eq!(error, "a copy of a KV cache: expected 2 heads of 8 in f16, got 2 heads of 8 in f32");
}
