//! A small transformer that learns: RMS norms, grouped-query attention with rotary positions, SwiGLU; bf16 products, f32
//! weights in the optimizer. The backward pass runs on one stream or two.

use half::bf16;
use halfbyte_cuda_driver::{Context, DeviceBuffer, Stream};
use halfbyte_cuda_kernels::attention::{
    AttentionParams, DeviceKvCache, KvFormat, KvLayout, Problem, prefill,
};
use halfbyte_cuda_kernels::training::attention::{BackwardBuffers, Forward, Gradients, backward};
use halfbyte_cuda_kernels::training::{
    AdamState, AdamW, Mark, NormGradients, Streams, cross_entropy, embed_backward, rms_norm_backward,
    rope_backward, swiglu_backward,
};
use halfbyte_cuda_kernels::{
    DeviceRopeTable, Error, HeadSteps, Kernels, Layout, MatmulOutput, Projections, RmsNorm, RopeOrder, add,
    add_assign, embed_bf16, matmul, rms_norm, rope_kv, swiglu,
};

/// Extents of a model and of its one sequence; all multiples of 8, `head_dim` 64 or 128.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) vocabulary: usize,
    pub(crate) width: usize,
    pub(crate) heads: usize,
    pub(crate) kv_heads: usize,
    pub(crate) head_dim: usize,
    pub(crate) hidden: usize,
    pub(crate) layers: usize,
    pub(crate) rows: usize,
}

impl Shape {
    fn q_width(&self) -> usize {
        self.heads * self.head_dim
    }

    fn kv_width(&self) -> usize {
        self.kv_heads * self.head_dim
    }

    fn params(&self) -> AttentionParams {
        AttentionParams {
            n_heads: self.heads,
            n_kv_heads: self.kv_heads,
            head_dim: self.head_dim,
            scale: 1.0 / (self.head_dim as f32).sqrt(),
            causal: true,
            window: None,
            soft_cap: None,
        }
    }

    fn norm(&self) -> RmsNorm {
        RmsNorm { rows: self.rows, width: self.width, epsilon: 1e-5 }
    }
}

/// Weights that are trained: in f32 with the optimizer's means, as bf16 for the products, and their gradient.
#[derive(Debug)]
pub(crate) struct Tensor {
    pub(crate) name: String,
    pub(crate) weights: DeviceBuffer<f32>,
    pub(crate) copy: DeviceBuffer<bf16>,
    pub(crate) gradient: DeviceBuffer<f32>,
    first: DeviceBuffer<f32>,
    second: DeviceBuffer<f32>,
}

impl Tensor {
    fn new(context: &Context, name: String, weights: &[f32]) -> Result<Self, Error> {
        let n = weights.len();
        let copy: Vec<bf16> = weights.iter().map(|&w| bf16::from_f32(w)).collect();
        Ok(Self {
            name,
            weights: DeviceBuffer::from_slice(context, weights)?,
            copy: DeviceBuffer::from_slice(context, &copy)?,
            gradient: DeviceBuffer::zeroed(context, n)?,
            first: DeviceBuffer::zeroed(context, n)?,
            second: DeviceBuffer::zeroed(context, n)?,
        })
    }
}

/// A layer's weights, by their place in the model's list, and what its forward pass keeps for the backward one.
#[derive(Debug)]
struct Layer {
    norm1: usize,
    wq: usize,
    wk: usize,
    wv: usize,
    wo: usize,
    norm2: usize,
    w13: usize,
    w2: usize,
    x: DeviceBuffer<bf16>,
    n1: DeviceBuffer<bf16>,
    queries: DeviceBuffer<bf16>,
    cache: DeviceKvCache,
    attended: DeviceBuffer<bf16>,
    lse: DeviceBuffer<f32>,
    x2: DeviceBuffer<bf16>,
    n2: DeviceBuffer<bf16>,
    gate_up: DeviceBuffer<bf16>,
    h: DeviceBuffer<bf16>,
}

/// What the layers share.
#[derive(Debug)]
struct Scratch {
    q: DeviceBuffer<bf16>,
    k: DeviceBuffer<bf16>,
    v: DeviceBuffer<bf16>,
    /// Rows of the width: what a product adds to the residual stream; in the backward pass gradients of norms' outputs.
    row: DeviceBuffer<bf16>,
    part: DeviceBuffer<bf16>,
    /// The gradient of the residual stream.
    dx: DeviceBuffer<bf16>,
    dh: DeviceBuffer<bf16>,
    d_attended: DeviceBuffer<bf16>,
    inverses: DeviceBuffer<f32>,
    attention: BackwardBuffers,
    /// Marks that the second stream has read `dx`; `q`, `k` and `v`; and something that is not overwritten.
    dx_read: Mark,
    heads_read: Mark,
    other_read: Mark,
}

/// The model, on its way through a step.
#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) shape: Shape,
    pub(crate) tensors: Vec<Tensor>,
    kernels: Kernels,
    rope: DeviceRopeTable,
    layers: Vec<Layer>,
    embedding: usize,
    last_norm: usize,
    output: usize,
    x: DeviceBuffer<bf16>,
    normed: DeviceBuffer<bf16>,
    logits: DeviceBuffer<f32>,
    d_logits: DeviceBuffer<bf16>,
    losses: DeviceBuffer<f32>,
    scratch: Scratch,
}

/// Uninitialised memory for bf16 numbers.
fn room(context: &Context, numbers: usize) -> Result<DeviceBuffer<bf16>, Error> {
    Ok(DeviceBuffer::uninit(context, numbers)?)
}

impl Model {
    /// A model of weights that `uniform` draws from -1 to 1, scaled by the root of what is summed.
    pub(crate) fn new(
        kernels: &Kernels,
        shape: Shape,
        mut uniform: impl FnMut() -> f32,
    ) -> Result<Self, Error> {
        let context = kernels.context();
        let Shape { vocabulary, width, hidden, rows, .. } = shape;
        let (q_width, kv_width) = (shape.q_width(), shape.kv_width());
        let mut tensors = Vec::new();
        let mut tensor = |name: String, outputs: usize, inputs: usize| -> Result<usize, Error> {
            let scale = (3.0 / inputs as f32).sqrt();
            let matrix = (0..outputs * inputs).map(|_| uniform() * scale);
            let weights: Vec<f32> = if outputs == 1 { vec![1.0; inputs] } else { matrix.collect() };
            tensors.push(Tensor::new(context, name, &weights)?);
            Ok(tensors.len() - 1)
        };
        let embedding = tensor("embedding".into(), vocabulary, width)?;
        let layout = KvLayout::new(KvFormat::Bf16, shape.kv_heads, shape.head_dim, rows)?;
        let mut layers = Vec::new();
        for l in 0..shape.layers {
            let mut of = |name: &str, outputs, inputs| tensor(format!("{l}.{name}"), outputs, inputs);
            layers.push(Layer {
                norm1: of("norm1", 1, width)?,
                wq: of("wq", q_width, width)?,
                wk: of("wk", kv_width, width)?,
                wv: of("wv", kv_width, width)?,
                wo: of("wo", width, q_width)?,
                norm2: of("norm2", 1, width)?,
                w13: of("w13", 2 * hidden, width)?,
                w2: of("w2", width, hidden)?,
                x: room(context, rows * width)?,
                n1: room(context, rows * width)?,
                queries: room(context, rows * q_width)?,
                cache: DeviceKvCache::new(context, layout)?,
                attended: room(context, rows * q_width)?,
                lse: DeviceBuffer::uninit(context, rows * shape.heads)?,
                x2: room(context, rows * width)?,
                n2: room(context, rows * width)?,
                gate_up: room(context, rows * 2 * hidden)?,
                h: room(context, rows * hidden)?,
            });
        }
        let last_norm = tensor("norm".into(), 1, width)?;
        let output = tensor("output".into(), vocabulary, width)?;
        let scratch = Scratch {
            q: room(context, rows * q_width)?,
            k: room(context, rows * kv_width)?,
            v: room(context, rows * kv_width)?,
            row: room(context, rows * width)?,
            part: room(context, rows * width)?,
            dx: room(context, rows * width)?,
            dh: room(context, rows * hidden)?,
            d_attended: room(context, rows * q_width)?,
            inverses: DeviceBuffer::uninit(context, rows)?,
            attention: BackwardBuffers::new(context, &shape.params(), rows)?,
            dx_read: Mark::new(context)?,
            heads_read: Mark::new(context)?,
            other_read: Mark::new(context)?,
        };
        Ok(Self {
            rope: DeviceRopeTable::new(
                kernels,
                &DeviceRopeTable::frequencies(shape.head_dim, 10_000.0),
                1.0,
                rows,
            )?,
            x: room(context, rows * width)?,
            normed: room(context, rows * width)?,
            logits: DeviceBuffer::uninit(context, rows * vocabulary)?,
            d_logits: room(context, rows * vocabulary)?,
            losses: DeviceBuffer::uninit(context, rows)?,
            kernels: kernels.clone(),
            shape,
            tensors,
            layers,
            embedding,
            last_norm,
            output,
            scratch,
        })
    }

    /// The mean loss of the predictions of `targets`; leaves what the backward pass needs.
    pub(crate) fn forward(
        &mut self,
        on: &Stream,
        tokens: &DeviceBuffer<u32>,
        targets: &DeviceBuffer<u32>,
    ) -> Result<f64, Error> {
        let Self { shape, tensors, kernels, scratch, rope, .. } = self;
        let Shape { vocabulary, width, hidden, rows, .. } = *shape;
        let (q_width, kv_width) = (shape.q_width(), shape.kv_width());
        let weights = |i: usize| tensors[i].copy.as_slice();
        let norms = |i: usize| tensors[i].weights.as_slice();
        let product =
            |outputs: usize, inputs: usize, x: &DeviceBuffer<bf16>, w: usize, y: &mut DeviceBuffer<bf16>| {
                let y = &mut MatmulOutput::Bf16(y.as_mut_slice());
                matmul(kernels, on, Layout::Nt, [rows, outputs, inputs], x.as_slice(), weights(w), y)
            };
        let ids = tokens.as_slice();
        embed_bf16(kernels, on, width, weights(self.embedding), ids, &mut self.x.as_mut_slice())?;
        for layer in &mut self.layers {
            layer.x.as_mut_slice().copy_from_device_async(&self.x.as_slice(), on)?;
            let n1 = &mut layer.n1.as_mut_slice();
            rms_norm(kernels, on, shape.norm(), layer.x.as_slice(), norms(layer.norm1), n1, None)?;
            product(q_width, width, &layer.n1, layer.wq, &mut scratch.q)?;
            product(kv_width, width, &layer.n1, layer.wk, &mut scratch.k)?;
            product(kv_width, width, &layer.n1, layer.wv, &mut scratch.v)?;
            let projections = Projections::Separate {
                queries: scratch.q.as_slice(),
                keys: scratch.k.as_slice(),
                values: scratch.v.as_slice(),
            };
            let steps = HeadSteps { rope: Some((rope, RopeOrder::Halves)), ..HeadSteps::default() };
            let (queries, cache) = (&mut layer.queries.as_mut_slice(), &mut layer.cache);
            rope_kv(kernels, on, [rows, shape.heads], 0, projections, &steps, queries, cache)?;
            let problem = problem(shape, &layer.cache, &layer.queries);
            let lse = &mut layer.lse.as_mut_slice();
            prefill(kernels, on, &problem, &mut layer.attended.as_mut_slice(), Some(lse))?;
            product(width, q_width, &layer.attended, layer.wo, &mut scratch.row)?;
            let x2 = &mut layer.x2.as_mut_slice();
            add(kernels, on, layer.x.as_slice(), scratch.row.as_slice(), x2)?;
            let n2 = &mut layer.n2.as_mut_slice();
            rms_norm(kernels, on, shape.norm(), layer.x2.as_slice(), norms(layer.norm2), n2, None)?;
            product(2 * hidden, width, &layer.n2, layer.w13, &mut layer.gate_up)?;
            let h = &mut layer.h.as_mut_slice();
            swiglu(kernels, on, [rows, hidden], layer.gate_up.as_slice(), h, None)?;
            product(width, hidden, &layer.h, layer.w2, &mut scratch.row)?;
            add(kernels, on, layer.x2.as_slice(), scratch.row.as_slice(), &mut self.x.as_mut_slice())?;
        }
        let normed = &mut self.normed.as_mut_slice();
        rms_norm(kernels, on, shape.norm(), self.x.as_slice(), norms(self.last_norm), normed, None)?;
        let (extents, logits) =
            ([rows, vocabulary, width], &mut MatmulOutput::F32(self.logits.as_mut_slice()));
        matmul(kernels, on, Layout::Nt, extents, self.normed.as_slice(), weights(self.output), logits)?;
        let (losses, d_logits) = (&mut self.losses.as_mut_slice(), &mut self.d_logits.as_mut_slice());
        let (logits, targets) = (self.logits.as_slice(), targets.as_slice());
        let scale = 1.0 / rows as f32;
        cross_entropy(kernels, on, [rows, vocabulary], logits, targets, scale, losses, d_logits)?;
        let mut host = vec![0.0; rows];
        self.losses.as_slice().copy_to_host(&mut host, on)?;
        Ok(host.into_iter().map(f64::from).sum::<f64>() / rows as f64)
    }

    /// Adds the gradients of the last forward pass's loss to the tensors'.
    ///
    /// The gradient of the residual stream goes down the layers on the main stream; those of the matrices, which nothing
    /// needs before the optimizer, go on the second. Every kernel gets the same inputs and adds them in the same order on
    /// one stream and on two.
    pub(crate) fn backward(
        &mut self,
        streams: &mut Streams,
        tokens: &DeviceBuffer<u32>,
    ) -> Result<(), Error> {
        let Self { shape, tensors, kernels, scratch: s, rope, .. } = self;
        let Shape { vocabulary, width, hidden, rows, heads, kv_heads, .. } = *shape;
        let (q_width, kv_width) = (shape.q_width(), shape.kv_width());
        // dx = dy W
        let input = |on: &Stream,
                     outputs,
                     inputs,
                     dy: &DeviceBuffer<bf16>,
                     w: &Tensor,
                     dx: &mut DeviceBuffer<bf16>| {
            let (dy, w, dx) = (dy.as_slice(), w.copy.as_slice(), &mut MatmulOutput::Bf16(dx.as_mut_slice()));
            matmul(kernels, on, Layout::Nn, [rows, inputs, outputs], dy, w, dx)
        };
        // dW += dy^T x
        let matrix = |on: &Stream,
                      outputs,
                      inputs,
                      dy: &DeviceBuffer<bf16>,
                      x: &DeviceBuffer<bf16>,
                      w: &mut Tensor| {
            let (dy, x, dw) =
                (dy.as_slice(), x.as_slice(), &mut MatmulOutput::AddF32(w.gradient.as_mut_slice()));
            matmul(kernels, on, Layout::Tn, [outputs, inputs, rows], dy, x, dw)
        };
        // The gradient of the residual stream, and of a norm's weights; `row` holds the gradient of the norm's output.
        let norm = |on: &Stream, x: &DeviceBuffer<bf16>, w: &mut Tensor, s: &mut Scratch, add: bool| {
            let (dy, weights) = (s.row.as_slice(), w.weights.as_slice());
            let to = &mut NormGradients {
                input: s.dx.as_mut_slice(),
                add,
                weights: w.gradient.as_mut_slice(),
                inverses: s.inverses.as_mut_slice(),
            };
            rms_norm_backward(kernels, on, shape.norm(), x.as_slice(), weights, dy, to)
        };

        streams.fork()?;
        input(streams.current(), vocabulary, width, &self.d_logits, &tensors[self.output], &mut s.row)?;
        streams.on2();
        let output = &mut tensors[self.output];
        matrix(streams.current(), vocabulary, width, &self.d_logits, &self.normed, output)?;
        streams.back(&mut s.other_read)?;
        norm(streams.current(), &self.x, &mut tensors[self.last_norm], s, false)?;

        for layer in self.layers.iter_mut().rev() {
            streams.fork()?;
            input(streams.current(), width, hidden, &s.dx, &tensors[layer.w2], &mut s.dh)?;
            streams.on2();
            matrix(streams.current(), width, hidden, &s.dx, &layer.h, &mut tensors[layer.w2])?;
            streams.back(&mut s.dx_read)?;
            let gate_up = &mut layer.gate_up.as_mut_slice();
            swiglu_backward(kernels, streams.current(), [rows, hidden], gate_up, s.dh.as_slice())?;

            streams.fork()?;
            input(streams.current(), 2 * hidden, width, &layer.gate_up, &tensors[layer.w13], &mut s.row)?;
            streams.on2();
            matrix(streams.current(), 2 * hidden, width, &layer.gate_up, &layer.n2, &mut tensors[layer.w13])?;
            streams.back(&mut s.other_read)?;
            streams.waitfor(&s.dx_read)?;
            norm(streams.current(), &layer.x2, &mut tensors[layer.norm2], s, true)?;

            streams.fork()?;
            input(streams.current(), width, q_width, &s.dx, &tensors[layer.wo], &mut s.d_attended)?;
            streams.on2();
            matrix(streams.current(), width, q_width, &s.dx, &layer.attended, &mut tensors[layer.wo])?;
            streams.back(&mut s.dx_read)?;

            streams.waitfor(&s.heads_read)?;
            let forward = Forward {
                out: layer.attended.as_slice(),
                lse: layer.lse.as_slice(),
                dout: s.d_attended.as_slice(),
            };
            let problem = problem(shape, &layer.cache, &layer.queries);
            let to =
                &mut Gradients { dq: s.q.as_mut_slice(), dk: s.k.as_mut_slice(), dv: s.v.as_mut_slice() };
            backward(kernels, streams.current(), &problem, &mut s.attention, &forward, to)?;
            let turn = (&*rope, RopeOrder::Halves);
            rope_backward(kernels, streams.current(), [rows, heads], 0, turn, &mut s.q.as_mut_slice())?;
            rope_backward(kernels, streams.current(), [rows, kv_heads], 0, turn, &mut s.k.as_mut_slice())?;

            streams.fork()?;
            input(streams.current(), q_width, width, &s.q, &tensors[layer.wq], &mut s.row)?;
            for (heads, w) in [(&s.k, layer.wk), (&s.v, layer.wv)] {
                input(streams.current(), kv_width, width, heads, &tensors[w], &mut s.part)?;
                add_assign(kernels, streams.current(), &mut s.row.as_mut_slice(), s.part.as_slice())?;
            }
            streams.on2();
            matrix(streams.current(), q_width, width, &s.q, &layer.n1, &mut tensors[layer.wq])?;
            matrix(streams.current(), kv_width, width, &s.k, &layer.n1, &mut tensors[layer.wk])?;
            matrix(streams.current(), kv_width, width, &s.v, &layer.n1, &mut tensors[layer.wv])?;
            streams.back(&mut s.heads_read)?;
            streams.waitfor(&s.dx_read)?;
            norm(streams.current(), &layer.x, &mut tensors[layer.norm1], s, true)?;
        }
        streams.join()?;
        let dw = &mut tensors[self.embedding].gradient.as_mut_slice();
        embed_backward(kernels, streams.current(), width, tokens.as_slice(), s.dx.as_slice(), dw)
    }

    /// Moves all weights by their gradients, and forgets those.
    pub(crate) fn step(&mut self, on: &Stream, settings: &AdamW) -> Result<(), Error> {
        for tensor in &mut self.tensors {
            let state = &mut AdamState {
                weights: tensor.weights.as_mut_slice(),
                first: tensor.first.as_mut_slice(),
                second: tensor.second.as_mut_slice(),
                copy: tensor.copy.as_mut_slice(),
            };
            settings.step(&self.kernels, on, state, tensor.gradient.as_slice())?;
            tensor.gradient.as_mut_slice().fill_bytes_async(0, on)?;
        }
        Ok(())
    }

    /// The tensor that has number `at` of all gradients.
    pub(crate) fn name_of(&self, mut at: usize) -> &str {
        for tensor in &self.tensors {
            if at < tensor.weights.len() {
                return &tensor.name;
            }
            at -= tensor.weights.len();
        }
        "no tensor"
    }

    /// All gradients as bits, and sets them to zero.
    pub(crate) fn take_gradients(&mut self, on: &Stream) -> Result<Vec<u32>, Error> {
        let mut all = Vec::new();
        for tensor in &mut self.tensors {
            let mut host = vec![0.0f32; tensor.gradient.len()];
            tensor.gradient.as_slice().copy_to_host(&mut host, on)?;
            tensor.gradient.as_mut_slice().fill_bytes_async(0, on)?;
            all.extend(host.into_iter().map(f32::to_bits));
        }
        Ok(all)
    }
}

/// A sequence's attention over its own keys and values.
fn problem<'a>(shape: &Shape, cache: &'a DeviceKvCache, queries: &'a DeviceBuffer<bf16>) -> Problem<'a> {
    let (rows, q) = (shape.rows, queries.as_slice());
    Problem { params: shape.params(), sinks: None, cache, kv_len: rows, first: 0, rows, q }
}
