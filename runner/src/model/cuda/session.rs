//! A sequence on the device.

use super::CudaError;
use super::upload::{CudaModel, DeviceNorm, Layer};
use crate::model::sequence;
use crate::model::state::SavedLayer;
use crate::model::{CannotCut, Error, Greedy, RopeId, SavedState, Sequence};
use half::bf16;
use halfbyte_cuda_driver::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Stream, StreamKind};
use halfbyte_cuda_kernels::attention::{
    self, AttentionParams, DecodeBuffers, DeviceKvCache, KvFormat, KvLayout, Problem,
};
use halfbyte_cuda_kernels::profiler::Report;
use halfbyte_cuda_kernels::{
    DeviceRopeTable, DeviceSampler, DeviceWeights, Draw, HeadSteps, MAX_ROWS, MAX_WINDOW, Prepared, Profiler,
    Projections, PromptInputs, PromptPrecision, Queue, RmsNorm, Sums, WindowOutput, add_rms_norm, embed,
    matvec, rms_norm, rope_kv, swiglu,
};
use halfbyte_q4::affine::GroupSize;
use std::sync::Arc;

/// How a [`CudaSession`] works.
#[derive(Clone, Copy, Debug)]
pub struct CudaOptions {
    /// Tokens that fit, prompt and reply together.
    pub context: usize,
    /// What a prompt's activations are rounded to.
    pub prompt_precision: PromptPrecision,
    /// How keys and values are kept.
    pub kv_format: KvFormat,
    /// Prompt rows that take the forward pass together, up to [`MAX_ROWS`]; the logits do not depend on it, except that with int8
    /// a chunk that int8 can't hold is computed in bf16.
    pub chunk: usize,
}

impl CudaOptions {
    /// bf16 prompts and caches, and chunks of 512 rows.
    pub fn new(context: usize) -> Self {
        Self { context, prompt_precision: PromptPrecision::Bf16, kv_format: KvFormat::Bf16, chunk: 512 }
    }
}

/// A model with tokens in its context.
#[derive(Debug)]
pub struct CudaSession {
    model: CudaModel,
    options: CudaOptions,
    stream: Stream,
    /// Times launches, if that was asked for.
    profiler: Option<Profiler>,
    ropes: Vec<DeviceRopeTable>,
    caches: Vec<DeviceKvCache>,
    len: usize,
    inputs: PromptInputs,
    partial: DecodeBuffers,
    b: Buffers,
    /// `None` for a vocabulary that it does not take.
    sampler: Option<DeviceSampler>,
    /// What it chose.
    chosen: DeviceBuffer<u32>,
    logits: Vec<f32>,
}

/// Working memory on the device, for a chunk of rows.
#[derive(Debug)]
struct Buffers {
    tokens: DeviceBuffer<u32>,
    /// The residual stream.
    x: DeviceBuffer<bf16>,
    /// A norm's output.
    h: DeviceBuffer<bf16>,
    /// What is to be added to the residual stream.
    delta: DeviceBuffer<bf16>,
    qkv: DeviceBuffer<bf16>,
    queries: DeviceBuffer<bf16>,
    attended: DeviceBuffer<bf16>,
    gate_up: DeviceBuffer<bf16>,
    hidden: DeviceBuffer<bf16>,
    /// Sums of groups of what the next prompt product reads.
    sums: DeviceBuffer<f32>,
    logits: DeviceBuffer<f32>,
}

/// Which kernels rows take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Path {
    Prompt,
    Window,
}

impl Buffers {
    fn new(model: &CudaModel, rows: usize) -> Result<Self, CudaError> {
        let (context, d, sizes) = (model.kernels().context(), model.description(), model.sizes());
        let bf16s = |width: usize| DeviceBuffer::<bf16>::uninit(context, rows * width);
        let widest = sizes.widest_input();
        // The smallest groups have the most sums.
        let sums = Sums::elements(rows, widest, GroupSize::G32);
        Ok(Self {
            tokens: DeviceBuffer::uninit(context, rows)?,
            x: bf16s(d.width)?,
            h: bf16s(d.width)?,
            delta: bf16s(d.width)?,
            qkv: bf16s(sizes.qkv)?,
            queries: bf16s(sizes.queries)?,
            attended: bf16s(sizes.queries)?,
            gate_up: bf16s(2 * sizes.hidden)?,
            hidden: bf16s(sizes.hidden)?,
            sums: DeviceBuffer::uninit(context, sums)?,
            logits: DeviceBuffer::uninit(context, MAX_WINDOW.min(rows) * d.n_vocab)?,
        })
    }
}

impl CudaSession {
    /// An empty context on `model`'s device.
    ///
    /// # Errors
    /// [`Error::Context`] if the context is 0 or longer than the model's; [`CudaError::Cuda`], [`CudaError::Driver`].
    pub fn new(model: &CudaModel, options: CudaOptions) -> Result<Self, Error> {
        let trained = model.description().context;
        if options.context == 0 || options.context > trained {
            return Err(Error::Context { wanted: options.context, trained });
        }
        let options = CudaOptions { chunk: options.chunk.clamp(1, MAX_ROWS), ..options };
        Ok(Self::checked(model, options)?)
    }

    fn checked(model: &CudaModel, options: CudaOptions) -> Result<Self, CudaError> {
        let (kernels, d) = (model.kernels(), model.description());
        let context = kernels.context();
        let rows = options.chunk.min(options.context).max(MAX_WINDOW);
        let layouts = model.layers().iter().map(|layer| {
            let AttentionParams { n_kv_heads, head_dim, .. } = layer.params;
            KvLayout::new(options.kv_format, n_kv_heads, head_dim, options.context)
        });
        let layouts = layouts.collect::<Result<Vec<_>, _>>()?;
        let caches =
            layouts.iter().map(|&layout| DeviceKvCache::new(context, layout)).collect::<Result<_, _>>()?;
        let ropes = d.ropes.iter().map(|rope| {
            let frequencies = rope.frequencies_for(options.context);
            DeviceRopeTable::new(kernels, &frequencies, rope.magnitude, options.context)
        });
        // One buffer serves all layers, so it is made for the most and the largest heads.
        let params = model.layers().iter().map(|layer| layer.params).reduce(|a, b| AttentionParams {
            n_heads: a.n_heads.max(b.n_heads),
            head_dim: a.head_dim.max(b.head_dim),
            ..a
        });
        let params = params.ok_or_else(|| super::unsupported("the number of layers", "at least 1", 0))?;
        let capacity = layouts.iter().map(KvLayout::capacity).max().unwrap_or(options.context);
        Ok(Self {
            options,
            stream: Stream::new(context, StreamKind::NonBlocking)?,
            profiler: None,
            ropes: ropes.collect::<Result<_, _>>()?,
            caches,
            len: 0,
            inputs: PromptInputs::new(kernels, model.sizes().widest_input()),
            partial: DecodeBuffers::new(context, &params, MAX_WINDOW, capacity)?,
            b: Buffers::new(model, rows)?,
            sampler: model.is_greedy().then(|| DeviceSampler::new(kernels, d.n_vocab)).transpose()?,
            chosen: DeviceBuffer::uninit(context, MAX_WINDOW)?,
            logits: Vec::new(),
            model: model.clone(),
        })
    }

    /// The options.
    pub fn options(&self) -> CudaOptions {
        self.options
    }

    /// Tokens in the context.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the context is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Forgets all tokens but the first `len`; more than there are changes nothing.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Times every launch from now on, for [`profile`](Self::profile).
    pub fn watch(&mut self) {
        self.profiler = Some(Profiler::new(self.model.kernels().context()));
    }

    /// What the launches since [`watch`](Self::watch), or since the last call, took; nothing if nobody watches.
    ///
    /// # Errors
    /// [`CudaError::Cuda`], also for work that failed.
    pub fn profile(&self) -> Result<Report, CudaError> {
        Ok(self.profiler.as_ref().map(Profiler::take).transpose()?.unwrap_or_default())
    }

    /// Adds a prompt's tokens, and returns the logits after the last of them.
    ///
    /// # Errors
    /// [`Error::NoTokens`], [`Error::Token`] and [`Error::ContextFull`], and the context is unchanged then;
    /// [`CudaError::Cuda`], [`CudaError::Driver`].
    pub fn prompt(&mut self, ids: &[u32]) -> Result<&mut [f32], Error> {
        self.prompt_rows(ids)?;
        self.fetch(1)?;
        Ok(&mut self.logits)
    }

    /// [`prompt`](Self::prompt), with the logits left in `b.logits`.
    fn prompt_rows(&mut self, ids: &[u32]) -> Result<(), Error> {
        self.check(ids)?;
        let chunks = ids.len().div_ceil(self.options.chunk);
        for (i, chunk) in ids.chunks(self.options.chunk).enumerate() {
            let rows = chunk.len();
            self.layers(chunk, Path::Prompt)?;
            if i + 1 == chunks {
                self.last(rows - 1, 1, Path::Prompt)?;
            }
            self.len += rows;
        }
        Ok(())
    }

    /// Adds a prompt's tokens, and calls `each(i, logits)` with the logits after every `ids[i]`.
    ///
    /// # Errors
    /// As [`prompt`](Self::prompt).
    pub fn prompt_all(&mut self, ids: &[u32], mut each: impl FnMut(usize, &[f32])) -> Result<(), Error> {
        self.check(ids)?;
        let n_vocab = self.model.description().n_vocab;
        let mut done = 0;
        for chunk in ids.chunks(self.options.chunk) {
            self.layers(chunk, Path::Prompt)?;
            for first in (0..chunk.len()).step_by(MAX_WINDOW) {
                let rows = MAX_WINDOW.min(chunk.len() - first);
                self.last(first, rows, Path::Prompt)?;
                self.fetch(rows)?;
                for (r, logits) in self.logits.chunks_exact(n_vocab).enumerate() {
                    each(done + first + r, logits);
                }
            }
            done += chunk.len();
            self.len += chunk.len();
        }
        Ok(())
    }

    /// Adds 1 to [`MAX_WINDOW`] tokens of a reply, chosen or drafted, and returns the logits after each, one row after the
    /// other. A row's bits are the same in any window.
    ///
    /// # Errors
    /// As [`prompt`](Self::prompt); [`CudaError::Unsupported`] for more tokens.
    pub fn window(&mut self, ids: &[u32]) -> Result<&mut [f32], Error> {
        self.window_rows(ids)?;
        self.fetch(ids.len())?;
        Ok(&mut self.logits)
    }

    /// [`window`](Self::window), with the logits left in `b.logits`.
    fn window_rows(&mut self, ids: &[u32]) -> Result<(), Error> {
        self.check(ids)?;
        if ids.len() > MAX_WINDOW {
            let (what, expected) = ("a window's number of tokens", "at most 32");
            return Err(CudaError::Unsupported { what, expected, got: ids.len().to_string() }.into());
        }
        self.layers(ids, Path::Window)?;
        self.last(0, ids.len(), Path::Window)?;
        self.len += ids.len();
        Ok(())
    }

    fn check(&self, ids: &[u32]) -> Result<(), Error> {
        sequence::check(ids, self.model.description().n_vocab, self.len, self.options.context)
    }

    /// Queues the rows of `ids` through all layers. What they leave is `b.x`, and for a prompt `b.delta`, which is still to be
    /// added to it.
    fn layers(&mut self, ids: &[u32], path: Path) -> Result<(), CudaError> {
        let rows = ids.len();
        let Self { model, options, stream, profiler, ropes, caches, len, inputs, partial, b, .. } = self;
        let queue = queue(profiler.as_ref(), stream);
        b.tokens.slice_mut(0..rows)?.copy_from_host(ids, stream)?;
        let (kernels, x) = (model.kernels(), rows * model.description().width);
        embed(kernels, queue, model.embedding(), b.tokens.slice(0..rows)?, &mut b.x.slice_mut(0..x)?)?;
        let mut pass = Pass { model, queue, rows, path, precision: options.prompt_precision, inputs };
        for (l, (layer, cache)) in model.layers().iter().zip(caches).enumerate() {
            let params = layer.params;
            let q_width = params.n_heads * params.head_dim;
            let first_norm = l == 0 || path == Path::Window;
            pass.norm(&layer.mixer_norm, &layer.qkv, b, first_norm)?;
            let width = layer.qkv.outputs();
            pass.times(&layer.qkv, b.h.slice(0..x)?, Some(&b.sums), b.qkv.slice_mut(0..rows * width)?)?;
            let mut queries = b.queries.slice_mut(0..rows * q_width)?;
            let projections = Projections::Joined(b.qkv.slice(0..rows * width)?);
            let steps = head_steps(model, layer, ropes);
            rope_kv(kernels, queue, [rows, params.n_heads], *len, projections, &steps, &mut queries, cache)?;
            let problem = Problem {
                params,
                sinks: layer.sinks.as_ref().map(DeviceBuffer::as_slice),
                cache,
                kv_len: *len + rows,
                first: *len,
                rows,
                q: b.queries.slice(0..rows * q_width)?,
            };
            let mut attended = b.attended.slice_mut(0..rows * q_width)?;
            match path {
                Path::Prompt => attention::prefill(kernels, queue, &problem, &mut attended, None)?,
                Path::Window => attention::decode(kernels, queue, &problem, partial, &mut attended)?,
            }
            let attended = b.attended.slice(0..rows * q_width)?;
            pass.add(&layer.mixer_output, attended, None, &mut b.x, &mut b.delta)?;

            pass.norm(&layer.feed_forward_norm, &layer.gate_up, b, path == Path::Window)?;
            pass.hidden(&layer.gate_up, layer.down.format().group(), b)?;
            let hidden = rows * layer.down.inputs();
            pass.add(&layer.down, b.hidden.slice(0..hidden)?, Some(&b.sums), &mut b.x, &mut b.delta)?;
        }
        Ok(())
    }

    /// Queues the logits of `rows` of the last pass, from `first` on: at most [`MAX_WINDOW`], into `b.logits`.
    fn last(&mut self, first: usize, rows: usize, path: Path) -> Result<(), CudaError> {
        let Self { model, stream, profiler, b, .. } = self;
        let queue = queue(profiler.as_ref(), stream);
        let (kernels, d, last) = (model.kernels(), model.description(), model.norm());
        let norm = RmsNorm { rows, width: d.width, epsilon: last.eps };
        let (from, n) = (first * d.width..(first + rows) * d.width, rows * d.width);
        let weight = last.weight.as_slice();
        let mut h = b.h.slice_mut(0..n)?;
        match path {
            Path::Window => {
                rms_norm(kernels, queue, norm, b.x.slice(from)?, weight, &mut h, None)?;
            }
            Path::Prompt => {
                let (mut x, delta) = (b.x.slice_mut(from.clone())?, b.delta.slice(from)?);
                add_rms_norm(kernels, queue, norm, &mut x, delta, weight, &mut h, None)?;
            }
        }
        let mut to = WindowOutput::F32(b.logits.slice_mut(0..rows * d.n_vocab)?);
        Ok(matvec(kernels, queue, rows, b.h.slice(0..n)?, model.output(), &mut to)?)
    }

    /// Waits for `rows` of logits.
    fn fetch(&mut self, rows: usize) -> Result<(), CudaError> {
        let n = rows * self.model.description().n_vocab;
        self.logits.resize(n, 0.0);
        Ok(self.b.logits.slice(0..n)?.copy_to_host(&mut self.logits, &self.stream)?)
    }

    /// Waits for the likeliest token of each of `rows` of logits, which are those of the context's last tokens.
    fn choose(&mut self, rows: usize) -> Result<Vec<u32>, CudaError> {
        let Self { model, stream, profiler, b, sampler, chosen, len, .. } = self;
        let what = "the size of the vocabulary";
        let n_vocab = model.description().n_vocab;
        let sampler = sampler.as_mut().ok_or_else(|| CudaError::Unsupported {
            what,
            expected: "what the sampler takes",
            got: n_vocab.to_string(),
        })?;
        let queue = queue(profiler.as_ref(), stream);
        let logits = b.logits.slice(0..rows * n_vocab)?;
        sampler.sample(queue, &vec![Draw::GREEDY; rows], logits, &mut chosen.slice_mut(0..rows)?)?;
        let mut tokens = vec![0; rows];
        chosen.slice(0..rows)?.copy_to_host(&mut tokens, stream)?;
        match tokens.iter().position(|&token| token == u32::MAX) {
            Some(row) => Err(CudaError::NoToken { position: *len - rows + row }),
            None => Ok(tokens),
        }
    }
}

fn queue<'a>(profiler: Option<&'a Profiler>, stream: &'a Stream) -> Queue<'a> {
    profiler.map_or_else(|| Queue::from(stream), |profiler| profiler.queue(stream))
}

fn head_steps<'a>(model: &CudaModel, layer: &'a Layer, ropes: &'a [DeviceRopeTable]) -> HeadSteps<'a> {
    HeadSteps {
        biases: layer.biases.as_ref().map(|biases| biases.each_ref().map(DeviceBuffer::as_slice)),
        norms: layer.head_norms.as_ref().map(|norms| norms.each_ref().map(DeviceBuffer::as_slice)),
        epsilon: layer.head_eps,
        rope: layer.rope.map(|RopeId(id)| (&ropes[id], model.rope_order(RopeId(id)))),
    }
}

/// The rows of one forward pass.
struct Pass<'a> {
    model: &'a CudaModel,
    queue: Queue<'a>,
    rows: usize,
    path: Path,
    precision: PromptPrecision,
    inputs: &'a mut PromptInputs,
}

impl Pass<'_> {
    /// A norm of the residual stream into `b.h`, with what the product by `consumer` wants of it. Unless it is `plain`,
    /// `b.delta` is added to the residual stream first.
    fn norm(
        &self,
        norm: &DeviceNorm,
        consumer: &DeviceWeights,
        b: &mut Buffers,
        plain: bool,
    ) -> Result<(), CudaError> {
        let (kernels, width) = (self.model.kernels(), self.model.description().width);
        let n = self.rows * width;
        let mut sums = self.sums(&mut b.sums, width, consumer.format().group())?;
        let (weight, mut h) = (norm.weight.as_slice(), b.h.slice_mut(0..n)?);
        let norm = RmsNorm { rows: self.rows, width, epsilon: norm.eps };
        if plain {
            rms_norm(kernels, self.queue, norm, b.x.slice(0..n)?, weight, &mut h, sums.as_mut())?;
        } else {
            let (mut x, delta) = (b.x.slice_mut(0..n)?, b.delta.slice(0..n)?);
            add_rms_norm(kernels, self.queue, norm, &mut x, delta, weight, &mut h, sums.as_mut())?;
        }
        Ok(())
    }

    /// Where a kernel writes the sums of its output's groups, if the product after it wants them.
    fn sums<'s>(
        &self,
        to: &'s mut DeviceBuffer<f32>,
        width: usize,
        group: GroupSize,
    ) -> Result<Option<Sums<'s>>, CudaError> {
        // int8 has its own, made with the codes; a window's kernels need none.
        if self.path == Path::Window || self.precision == PromptPrecision::Int8 {
            return Ok(None);
        }
        Ok(Some(Sums { group, to: to.slice_mut(0..Sums::elements(self.rows, width, group))? }))
    }

    /// `y = x W^T`; `sums` are those of `x`, where the kernel that made it wrote them.
    fn times(
        &mut self,
        weights: &DeviceWeights,
        x: DeviceSlice<'_, bf16>,
        sums: Option<&DeviceBuffer<f32>>,
        mut y: DeviceSliceMut<'_, bf16>,
    ) -> Result<(), CudaError> {
        let Self { model, queue, rows, path, precision, .. } = *self;
        let kernels = model.kernels();
        if path == Path::Window {
            return Ok(matvec(kernels, queue, rows, x, weights, &mut WindowOutput::Bf16(y))?);
        }
        let (inputs, group) = (weights.inputs(), weights.format().group());
        let prepared = match sums {
            Some(sums) if precision == PromptPrecision::Bf16 => {
                let sums = sums.slice(0..Sums::elements(rows, inputs, group))?;
                Prepared::summed(kernels, x, rows, inputs, group, sums)?
            }
            _ => self.inputs.prepare(queue, precision, x, rows, inputs, group)?,
        };
        Ok(prepared.multiply(queue, weights, &mut y)?)
    }

    /// The hidden layer of the feed-forward network, of the norm in `b.h`: `b.hidden`, which a product by groups of `group`
    /// takes next.
    fn hidden(
        &mut self,
        gate_up: &DeviceWeights,
        group: GroupSize,
        b: &mut Buffers,
    ) -> Result<(), CudaError> {
        let (kernels, hidden) = (self.model.kernels(), gate_up.outputs() / 2);
        let (rows, n) = (self.rows, self.rows * hidden);
        let x = rows * self.model.description().width;
        let (x, mut h) = (b.h.slice(0..x)?, b.hidden.slice_mut(0..n)?);
        if self.path == Path::Window {
            return Ok(matvec(kernels, self.queue, rows, x, gate_up, &mut WindowOutput::Swiglu(h))?);
        }
        self.times(gate_up, x, Some(&b.sums), b.gate_up.slice_mut(0..2 * n)?)?;
        let mut sums = self.sums(&mut b.sums, hidden, group)?;
        let both = b.gate_up.slice(0..2 * n)?;
        Ok(swiglu(kernels, self.queue, [rows, hidden], both, &mut h, sums.as_mut())?)
    }

    /// Adds `x W^T` to the residual stream, or for a prompt puts it into `delta` for the next norm to add.
    fn add(
        &mut self,
        weights: &DeviceWeights,
        x: DeviceSlice<'_, bf16>,
        sums: Option<&DeviceBuffer<f32>>,
        residual: &mut DeviceBuffer<bf16>,
        delta: &mut DeviceBuffer<bf16>,
    ) -> Result<(), CudaError> {
        let n = self.rows * weights.outputs();
        match self.path {
            Path::Prompt => self.times(weights, x, sums, delta.slice_mut(0..n)?),
            Path::Window => {
                let mut to = WindowOutput::AddBf16(residual.slice_mut(0..n)?);
                Ok(matvec(self.model.kernels(), self.queue, self.rows, x, weights, &mut to)?)
            }
        }
    }
}

impl Sequence for CudaSession {
    fn context(&self) -> usize {
        self.options.context
    }

    fn chunk(&self) -> usize {
        self.options.chunk
    }

    fn n_vocab(&self) -> usize {
        self.model.description().n_vocab
    }

    fn len(&self) -> usize {
        self.len()
    }

    fn cut(&mut self, len: usize) -> Result<(), CannotCut> {
        self.truncate(len);
        Ok(())
    }

    fn save(&self) -> Result<SavedState, Error> {
        let layers = self.caches.iter().map(|cache| {
            let copy = cache.duplicate(&self.stream).map_err(CudaError::from)?;
            Ok(SavedLayer::Device(Arc::new(copy)))
        });
        let layers = layers.collect::<Result<_, Error>>()?;
        // The copies may be read by other streams later.
        self.stream.synchronize().map_err(CudaError::from)?;
        let ropes = self.model.description().rope_kinds(self.options.context);
        Ok(SavedState { len: self.len, layers, ropes })
    }

    fn restore(&mut self, saved: &SavedState) -> Result<(), Error> {
        if saved.ropes != self.model.description().rope_kinds(self.options.context) {
            return Err(Error::OtherState);
        }
        let caches = saved.layers.iter().map(|layer| match layer {
            SavedLayer::Device(cache) => Some(cache),
            _ => None,
        });
        let caches = caches.collect::<Option<Vec<_>>>().filter(|caches| caches.len() == self.caches.len());
        for (to, from) in self.caches.iter_mut().zip(caches.ok_or(Error::OtherState)?) {
            to.copy_from(from, &self.stream).map_err(CudaError::from)?;
        }
        self.len = saved.len;
        Ok(())
    }

    fn prompt(&mut self, ids: &[u32]) -> Result<&mut [f32], Error> {
        self.prompt(ids)
    }

    fn window(&mut self, ids: &[u32], each: &mut dyn FnMut(usize, &mut [f32])) -> Result<(), Error> {
        self.check(ids)?;
        let n_vocab = self.model.description().n_vocab;
        for (w, window) in ids.chunks(MAX_WINDOW).enumerate() {
            let logits = self.window(window)?;
            for (i, logits) in logits.chunks_exact_mut(n_vocab).enumerate() {
                each(w * MAX_WINDOW + i, logits);
            }
        }
        Ok(())
    }

    fn greedy(&mut self) -> Option<&mut dyn Greedy> {
        if self.sampler.is_some() { Some(self) } else { None }
    }
}

impl Greedy for CudaSession {
    fn prompt_token(&mut self, ids: &[u32]) -> Result<u32, Error> {
        self.prompt_rows(ids)?;
        Ok(self.choose(1)?[0])
    }

    fn window_tokens(&mut self, ids: &[u32], each: &mut dyn FnMut(usize, u32)) -> Result<(), Error> {
        self.check(ids)?;
        for (w, window) in ids.chunks(MAX_WINDOW).enumerate() {
            self.window_rows(window)?;
            for (i, token) in self.choose(window.len())?.into_iter().enumerate() {
                each(w * MAX_WINDOW + i, token);
            }
        }
        Ok(())
    }
}
