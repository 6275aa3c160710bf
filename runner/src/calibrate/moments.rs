//! Second moments of activations.

use halfbyte_cpu_kernels::{Context, Matrix, Weights, gemm_f32};

use crate::model;

/// The rows of the sum that are computed at once, which bounds the memory for products.
const STRIP: usize = 256;

/// `sum x x^T` over rows of activations, in f64.
///
/// Products and their sums over the rows of one [`add`](Self::add) are f32, as [`gemm_f32`] makes them; from one
/// call to the next f64. So the bits depend on how rows are cut into calls, and on nothing else. Only the lower
/// triangle is computed; the upper must not be read.
#[derive(Debug)]
pub(super) struct Moments {
    n: usize,
    sums: Vec<f64>,
    transposed: Vec<f32>,
    products: Vec<f32>,
}

impl Moments {
    pub(super) fn new(n: usize) -> Self {
        Self { n, sums: vec![0.0; n * n], transposed: Vec::new(), products: Vec::new() }
    }

    /// The columns.
    pub(super) fn columns(&self) -> usize {
        self.n
    }

    /// The sums, row-major, of which the lower triangle counts.
    pub(super) fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// Adds `rows` rows.
    pub(super) fn add(&mut self, ctx: Context<'_>, x: &[f32], rows: usize) -> Result<(), model::Error> {
        let n = self.n;
        self.transposed.resize(n * rows, 0.0);
        ctx.pool.par_chunks_mut(&mut self.transposed, rows, |column, out| {
            for (out, row) in out.iter_mut().zip(x.chunks_exact(n)) {
                *out = row[column];
            }
        });
        for start in (0..n).step_by(STRIP) {
            let end = n.min(start + STRIP);
            // Columns 0..end by columns start..end: the strip of the lower triangle, and a little more.
            let columns = Matrix::new(Weights::F32(&self.transposed[..end * rows]), end, rows)?;
            self.products.resize((end - start) * end, 0.0);
            let strip = &self.transposed[start * rows..end * rows];
            gemm_f32(ctx, &columns, strip, end - start, &mut self.products)?;
            for (sums, products) in
                self.sums[start * n..end * n].chunks_exact_mut(n).zip(self.products.chunks_exact(end))
            {
                for (sum, &product) in sums.iter_mut().zip(products) {
                    *sum += f64::from(product);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_those_of_the_definition() {
        let pool = halfbyte_threadpool::ThreadPool::new(2).unwrap();
        let ctx = Context::new(&pool).unwrap();
        // More columns than a strip; small whole numbers, whose sums are exact.
        let (n, rows) = (STRIP + 44, 5);
        let value = |r: usize, c: usize| ((r * 31 + c * 17 + r * c) % 23) as f32 - 11.0;
        let mut moments = Moments::new(n);
        for first in [0, rows] {
            let x: Vec<f32> = (0..rows * n).map(|i| value(first + i / n, i % n)).collect();
            moments.add(ctx, &x, rows).unwrap();
        }
        assert_eq!(moments.columns(), n);
        for i in 0..n {
            for j in 0..=i {
                let expected: f32 = (0..2 * rows).map(|r| value(r, i) * value(r, j)).sum();
                assert_eq!(moments.sums()[i * n + j], f64::from(expected), "{i} {j}");
            }
        }
    }
}
