//! Our quantizers for `compare/quantizers.py`, timed one at a time as it asks: see there.
//!
//! `quantizers ROWS IMPORTANCE`: two files of little-endian f32, the weights of some rows and one importance for each
//! column. Every line of the input is `NAME OUT`; the answer is a line with the weights a second of quantizer `NAME` on
//! one thread, over and over for a tenth of a second, and its blocks lie in the file `OUT`.

use halfbyte_cpu_kernels::{Context, Isa, quantize_q4_0_fit};
use halfbyte_q4::{BlockQ4_0, BlockQ4_1};
use halfbyte_q8::BlockQ8_0;
use halfbyte_threadpool::ThreadPool;
use std::error::Error;
use std::io::BufRead;
use std::time::{Duration, Instant};

type Outcome<T> = Result<T, Box<dyn Error>>;

const LEAST_TIME: Duration = Duration::from_millis(100);

fn floats(path: &str) -> Outcome<Vec<f32>> {
    let bytes = std::fs::read(path)?;
    Ok(bytes.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b)).collect())
}

/// Runs `quantize` row by row until the time is up.
fn measure<B: bytemuck::Pod, E: Error + 'static>(
    x: &[f32],
    columns: usize,
    mut quantize: impl FnMut(&[f32], &mut [B]) -> Result<(), E>,
) -> Outcome<(f64, Vec<u8>)> {
    let mut blocks = vec![B::zeroed(); x.len() / 32];
    let (mut rounds, start) = (0.0, Instant::now());
    while start.elapsed() < LEAST_TIME {
        for (row, out) in x.chunks_exact(columns).zip(blocks.chunks_exact_mut(columns / 32)) {
            quantize(row, out)?;
        }
        rounds += 1.0;
    }
    let rate = rounds * x.len() as f64 / start.elapsed().as_secs_f64();
    Ok((rate, bytemuck::cast_slice(&blocks).to_vec()))
}

fn main() -> Outcome<()> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, rows, importance] = arguments.as_slice() else { return Err("quantizers ROWS IMPORTANCE".into()) };
    let (x, importance) = (floats(rows)?, floats(importance)?);
    let columns = importance.len();
    if columns == 0 || !columns.is_multiple_of(32) || !x.len().is_multiple_of(columns) {
        return Err(format!("{} weights are not rows of {columns}, a multiple of 32", x.len()).into());
    }
    let pool = ThreadPool::new(1)?;
    let context = |isa: Option<&str>| -> Outcome<Context<'_>> {
        let Some(name) = isa else { return Ok(Context::new(&pool)?) };
        let isa = Isa::available().into_iter().find(|isa| isa.name() == name);
        Ok(Context { pool: &pool, isa: isa.ok_or_else(|| format!("this machine has no {name}"))? })
    };
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let (name, path) = line.split_once(' ').ok_or("expected NAME OUT")?;
        let (name, isa) = name.split_once('/').map_or((name, None), |(name, isa)| (name, Some(isa)));
        let w = &importance;
        let (rate, blocks) = match name {
            "q4_row_max" => measure(&x, columns, halfbyte_q4::q4_row_max),
            "q4_0_fit" => {
                let ctx = context(isa)?;
                measure(&x, columns, |x, out: &mut [BlockQ4_0]| quantize_q4_0_fit(ctx, x, out))
            }
            "q4_row_fit_weighted" => measure(&x, columns, |x, out: &mut [BlockQ4_0]| {
                halfbyte_q4::q4_row_fit_weighted(x, w, out).map(|_| ())
            }),
            "q4_1_row" => measure(&x, columns, halfbyte_q4::q4_1_row),
            "q4_1_row_weighted" => measure(&x, columns, |x, out: &mut [BlockQ4_1]| {
                halfbyte_q4::q4_1_row_weighted(x, w, out).map(|_| ())
            }),
            "q8_row" => measure::<BlockQ8_0, _>(&x, columns, halfbyte_q8::quantize_row),
            "q8_row_fit" => measure::<BlockQ8_0, _>(&x, columns, halfbyte_q8::quantize_row_fit),
            _ => Err(format!("no quantizer is called {name}").into()),
        }?;
        std::fs::write(path, blocks)?;
        println!("{rate}");
    }
    Ok(())
}
