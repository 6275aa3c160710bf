//! Attention problems for tests: random ones, their f64 twin with a bound, and runs through the launchers.

use super::Activations as _;
use half::bf16;
use halfbyte_cuda_driver::{Context, DeviceBuffer, Stream};
use halfbyte_cuda_kernels::Kernels;
use halfbyte_cuda_kernels::attention::{
    AttentionParams, DecodeBuffers, DeviceKvCache, KvFormat, KvLayout, KvStorage, Problem, decode, prefill,
};
use halfbyte_cuda_kernels::training::attention::{BackwardBuffers, Forward, Gradients, backward};
use halfbyte_testing::Rng;

/// A problem on the host. Keys and values are `[kv_head][position][head_dim]`, `kv_len` positions a head.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) params: AttentionParams,
    pub(crate) sinks: Option<Vec<f32>>,
    pub(crate) kv_len: usize,
    pub(crate) first: usize,
    pub(crate) rows: usize,
    pub(crate) q: Vec<bf16>,
    pub(crate) keys: Plane,
    pub(crate) values: Plane,
}

/// Keys or values as they lie in a cache, without the positions that nobody wrote.
#[derive(Debug, Clone)]
pub(crate) enum Plane {
    Bf16(Vec<bf16>),
    Fp8 { codes: Vec<u8>, scales: Vec<f32> },
}

/// e4m3 by its definition.
pub(crate) fn e4m3(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3 & 15), f64::from(code & 7));
    let magnitude =
        if exponent == 0 { mantissa / 512.0 } else { (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7) };
    if code >= 128 { -magnitude } else { magnitude }
}

impl Plane {
    pub(crate) fn random(random: &mut Rng, format: KvFormat, rows: usize, dim: usize) -> Self {
        match format {
            KvFormat::Bf16 => Self::Bf16(random.activations(rows * dim)),
            // All codes but the two NaNs; half of them near the largest.
            KvFormat::Fp8 => Self::Fp8 {
                codes: (0..rows * dim)
                    .map(|_| (random.bits() % 127) as u8 | (random.bits() % 2 * 128) as u8)
                    .collect(),
                scales: (0..rows).map(|_| random.f32().abs() / 40.0).collect(),
            },
        }
    }

    pub(crate) fn of(values: &[f32]) -> Self {
        Self::Bf16(values.iter().map(|v| bf16::from_f32(*v)).collect())
    }

    /// Element `i` as a number.
    pub(crate) fn at(&self, i: usize, dim: usize) -> f64 {
        match self {
            Self::Bf16(elements) => elements[i].to_f64(),
            Self::Fp8 { codes, scales } => e4m3(codes[i]) * f64::from(scales[i / dim]),
        }
    }
}

/// Uploads `kv_len` positions of each head; what follows them is not written.
fn fill<T: bytemuck::Pod>(to: &mut DeviceBuffer<T>, from: &[T], heads: usize, capacity: usize, row: usize) {
    let used = from.len() / heads;
    for head in 0..heads {
        let start = head * capacity * row;
        let mut part = to.slice_mut(start..start + used).unwrap();
        let stream = Stream::legacy_default(part.context());
        if used > 0 {
            part.copy_from_host(&from[head * used..][..used], &stream).unwrap();
        }
    }
}

impl Case {
    /// A random causal problem: `kv_len` is `first + rows`.
    pub(crate) fn random(
        random: &mut Rng,
        format: KvFormat,
        params: AttentionParams,
        first: usize,
        rows: usize,
    ) -> Self {
        let (kv_len, dim) = (first + rows, params.head_dim);
        let positions = params.n_kv_heads * kv_len;
        Self {
            params,
            sinks: None,
            kv_len,
            first,
            rows,
            q: random.activations(rows * params.width()),
            keys: Plane::random(random, format, positions, dim),
            values: Plane::random(random, format, positions, dim),
        }
    }

    /// Any problem: widths, groups, positions, masks, caps, sinks, and rows whose own position is not in use.
    pub(crate) fn any(random: &mut Rng) -> Self {
        let n_kv_heads = 1 + random.below(3);
        let mut of = params(n_kv_heads * (1 + random.below(9)), n_kv_heads, 64 << random.below(3));
        of.causal = random.below(4) > 0;
        of.window = (random.below(3) == 0).then(|| 1 + random.below(300) as u32);
        of.soft_cap = (random.below(4) == 0).then(|| 1.0 + random.f32().abs() * 30.0);
        of.scale *= random.f32() * 2.0;
        let format = if random.below(2) == 0 { KvFormat::Bf16 } else { KvFormat::Fp8 };
        let (first, rows) = (random.below(600), 1 + random.below(40));
        let mut case = Self::random(random, format, of, first, rows);
        if random.below(2) == 0 {
            case.sinks = Some((0..of.n_heads).map(|_| random.f32() * 8.0).collect());
        }
        // Some rows may stand behind what is in use.
        case.first += random.below(2) * random.below(100);
        case
    }

    /// The rows `range` as a call of their own, over the same cache.
    pub(crate) fn part(&self, range: std::ops::Range<usize>) -> Self {
        let width = self.params.width();
        Self {
            first: self.first + range.start,
            rows: range.len(),
            q: self.q[range.start * width..range.end * width].to_vec(),
            ..self.clone()
        }
    }

    pub(crate) fn format(&self) -> KvFormat {
        match self.keys {
            Plane::Bf16(_) => KvFormat::Bf16,
            Plane::Fp8 { .. } => KvFormat::Fp8,
        }
    }

    pub(crate) fn cache(&self, context: &Context) -> DeviceKvCache {
        let AttentionParams { n_kv_heads, head_dim, .. } = self.params;
        let layout = KvLayout::new(self.format(), n_kv_heads, head_dim, self.kv_len + 100).unwrap();
        let capacity = layout.capacity();
        let storage = match (&self.keys, &self.values) {
            (Plane::Bf16(k), Plane::Bf16(v)) => {
                let [mut keys, mut values] =
                    [(); 2].map(|()| DeviceBuffer::uninit(context, layout.elements()).unwrap());
                fill(&mut keys, k, n_kv_heads, capacity, head_dim);
                fill(&mut values, v, n_kv_heads, capacity, head_dim);
                KvStorage::Bf16 { keys, values }
            }
            (Plane::Fp8 { codes: k, scales: ks }, Plane::Fp8 { codes: v, scales: vs }) => {
                let [mut keys, mut values] =
                    [(); 2].map(|()| DeviceBuffer::uninit(context, layout.elements()).unwrap());
                let [mut key_scales, mut value_scales] =
                    [(); 2].map(|()| DeviceBuffer::uninit(context, layout.scales()).unwrap());
                fill(&mut keys, k, n_kv_heads, capacity, head_dim);
                fill(&mut values, v, n_kv_heads, capacity, head_dim);
                fill(&mut key_scales, ks, n_kv_heads, capacity, 1);
                fill(&mut value_scales, vs, n_kv_heads, capacity, 1);
                KvStorage::Fp8 { keys, values, key_scales, value_scales }
            }
            _ => panic!("keys and values of one format"),
        };
        DeviceKvCache::from_storage(layout, storage).unwrap()
    }

    fn with<R>(&self, context: &Context, cache: &DeviceKvCache, run: impl FnOnce(&Problem<'_>) -> R) -> R {
        let q = DeviceBuffer::from_slice(context, &self.q).unwrap();
        let sinks = self.sinks.as_ref().map(|s| DeviceBuffer::from_slice(context, s).unwrap());
        run(&Problem {
            params: self.params,
            sinks: sinks.as_ref().map(DeviceBuffer::as_slice),
            cache,
            kv_len: self.kv_len,
            first: self.first,
            rows: self.rows,
            q: q.as_slice(),
        })
    }

    /// Outputs and log-sum-exp of the prefill kernel.
    pub(crate) fn prefill(&self, kernels: &Kernels, cache: &DeviceKvCache) -> (Vec<bf16>, Vec<f32>) {
        let context = kernels.context();
        let stream = Stream::legacy_default(context);
        let mut out = DeviceBuffer::uninit(context, self.q.len()).unwrap();
        let mut lse = DeviceBuffer::uninit(context, self.rows * self.params.n_heads).unwrap();
        self.with(context, cache, |problem| {
            prefill(kernels, &stream, problem, &mut out.as_mut_slice(), Some(&mut lse.as_mut_slice()))
                .unwrap();
        });
        (out.to_vec().unwrap(), lse.to_vec().unwrap())
    }

    /// Outputs of the decode kernels.
    pub(crate) fn decode(&self, kernels: &Kernels, cache: &DeviceKvCache) -> Vec<bf16> {
        let context = kernels.context();
        let stream = Stream::legacy_default(context);
        let mut out = DeviceBuffer::uninit(context, self.q.len()).unwrap();
        let mut buffers = DecodeBuffers::new(context, &self.params, self.rows, self.kv_len).unwrap();
        self.with(context, cache, |problem| {
            decode(kernels, &stream, problem, &mut buffers, &mut out.as_mut_slice()).unwrap();
        });
        out.to_vec().unwrap()
    }

    /// dq, dk and dv of the backward kernels.
    pub(crate) fn gradients(&self, kernels: &Kernels, dout: &[bf16]) -> [Vec<bf16>; 3] {
        let context = kernels.context();
        let cache = self.cache(context);
        let (out, lse) = self.prefill(kernels, &cache);
        let [q, out, dout] = [&self.q, &out, dout].map(|x| DeviceBuffer::from_slice(context, x).unwrap());
        let lse = DeviceBuffer::from_slice(context, &lse).unwrap();
        let kv = self.kv_len * self.params.n_kv_heads * self.params.head_dim;
        let [mut dq, mut dk, mut dv] =
            [self.q.len(), kv, kv].map(|n| DeviceBuffer::<bf16>::uninit(context, n).unwrap());
        let mut buffers = BackwardBuffers::new(context, &self.params, self.rows).unwrap();
        let problem = Problem {
            params: self.params,
            sinks: None,
            cache: &cache,
            kv_len: self.kv_len,
            first: self.first,
            rows: self.rows,
            q: q.as_slice(),
        };
        let forward = Forward { out: out.as_slice(), lse: lse.as_slice(), dout: dout.as_slice() };
        let mut to = Gradients { dq: dq.as_mut_slice(), dk: dk.as_mut_slice(), dv: dv.as_mut_slice() };
        backward(kernels, &Stream::legacy_default(context), &problem, &mut buffers, &forward, &mut to)
            .unwrap();
        [dq, dk, dv].map(|x| x.to_vec().unwrap())
    }

    /// Whether row `row` sees position `j`.
    pub(crate) fn sees(&self, row: usize, j: usize) -> bool {
        let p = self.first + row;
        j < self.kv_len
            && (!self.params.causal || j <= p)
            && self.params.window.is_none_or(|window| j.abs_diff(p) < window as usize)
    }

    /// The f64 twin: outputs, the bound on an output's error that `prefill` documents, and log-sum-exp `[head][row]`.
    pub(crate) fn twin(&self) -> Twin {
        let AttentionParams { n_heads, head_dim: dim, .. } = self.params;
        let u = 2f64.powi(-24);
        let mut twin = Twin { out: vec![], bound: vec![], lse: vec![0.0; n_heads * self.rows] };
        for (i, query) in self.q.chunks_exact(dim).enumerate() {
            let (row, head) = (i / n_heads, i % n_heads);
            let at = |j: usize, d: usize| (head / self.params.group() * self.kv_len + j) * dim + d;
            let mut largest_sum = 0f64;
            let seen: Vec<usize> = (0..self.kv_len).filter(|&j| self.sees(row, j)).collect();
            let scores: Vec<f64> = seen
                .iter()
                .map(|&j| {
                    let products = (0..dim).map(|d| query[d].to_f64() * self.keys.at(at(j, d), dim));
                    let scale = f64::from(self.params.scale);
                    largest_sum = largest_sum.max(products.clone().map(f64::abs).sum::<f64>() * scale.abs());
                    let score = products.sum::<f64>() * scale;
                    match self.params.soft_cap {
                        None => score,
                        Some(cap) => f64::from(cap) * (score / f64::from(cap)).tanh(),
                    }
                })
                .collect();
            let sink = self.sinks.as_ref().map_or(f64::NEG_INFINITY, |s| f64::from(s[head]));
            let top = scores.iter().copied().fold(sink, f64::max);
            let base = if top == f64::NEG_INFINITY { 0.0 } else { top };
            let weights: Vec<f64> = scores.iter().map(|s| (s - base).exp()).collect();
            let total = weights.iter().sum::<f64>() + (sink - base).exp();
            twin.lse[head * self.rows + row] = base + total.ln();
            let cap = self.params.soft_cap.map_or(0.0, f64::from);
            let relative = u * ((dim as f64 + 8.0) * largest_sum + 8.0 * cap + seen.len() as f64 + 64.0);
            for d in 0..dim {
                let terms = weights.iter().zip(&seen).map(|(w, &j)| w * self.values.at(at(j, d), dim));
                let (sum, mean) = (terms.clone().sum::<f64>(), terms.map(f64::abs).sum::<f64>());
                let scaled = |x: f64| if total == 0.0 { 0.0 } else { x / total };
                let (sum, mean) = (scaled(sum), scaled(mean));
                // Half a unit of bf16 is 2^-8 of a number at most.
                let bound = mean * (2f64.powi(-8) + 2.0 * relative);
                twin.out.push(sum);
                twin.bound.push(bound + (sum.abs() + bound) * 2f64.powi(-8) + 1e-38);
            }
        }
        twin
    }
}

/// What a problem's answer is, and how far off the kernels may be.
#[derive(Debug)]
pub(crate) struct Twin {
    pub(crate) out: Vec<f64>,
    pub(crate) bound: Vec<f64>,
    pub(crate) lse: Vec<f64>,
}

impl Twin {
    /// The largest share of its bound that an output's error takes; fails beyond 1.
    pub(crate) fn compare(&self, got: &[bf16], what: &str) -> f64 {
        assert_eq!(got.len(), self.out.len());
        let mut worst = 0f64;
        for (i, got) in got.iter().enumerate() {
            let share = (got.to_f64() - self.out[i]).abs() / self.bound[i];
            assert!(share <= 1.0, "{what}, output {i}: {got} for {}, {share} of the bound", self.out[i]);
            worst = worst.max(share);
        }
        worst
    }
}

/// The parameters of a causal layer without a window, a soft cap or sinks.
pub(crate) fn params(n_heads: usize, n_kv_heads: usize, head_dim: usize) -> AttentionParams {
    let scale = 1.0 / (head_dim as f32).sqrt();
    AttentionParams { n_heads, n_kv_heads, head_dim, scale, causal: true, window: None, soft_cap: None }
}

/// The bits of outputs.
pub(crate) fn bits(numbers: &[bf16]) -> Vec<u16> {
    numbers.iter().map(|v| v.to_bits()).collect()
}
