//! The profiler's table: launches summed by kernel and shape.

use super::Work;
use std::collections::BTreeMap;
use std::fmt;

/// Launches of one kernel on one shape.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The kernel's entry point.
    pub kernel: String,
    /// The shape it was launched on, as its launcher names it.
    pub shape: String,
    /// Launches.
    pub calls: u64,
    /// Milliseconds on the GPU, of all calls.
    pub total_ms: f64,
    /// What all calls did.
    pub work: Work,
}

impl Row {
    /// Milliseconds a call.
    #[must_use]
    pub fn mean_ms(&self) -> f64 {
        self.total_ms / self.calls as f64
    }

    /// Operations a second in units of 10^12, for a kernel bound by arithmetic.
    #[must_use]
    pub fn tera_operations(&self) -> f64 {
        self.work.operations as f64 / self.total_ms / 1e9
    }

    /// Bytes a second in units of 10^9, for a kernel bound by memory.
    #[must_use]
    pub fn gigabytes(&self) -> f64 {
        self.work.bytes as f64 / self.total_ms / 1e6
    }
}

/// What a profiler saw: rows in order of their total time, the longest first.
///
/// `Display` prints the table: calls, total and mean time, share of the whole, and TFLOP/s (a multiply-add is two
/// operations) where a kernel multiplies, GB/s where it only moves.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Report {
    /// One row for every kernel and shape.
    pub rows: Vec<Row>,
}

impl Report {
    /// Sums launches by kernel and shape.
    pub(super) fn of<'a>(launches: impl IntoIterator<Item = (&'a str, &'a str, Work, f64)>) -> Self {
        let mut sums = BTreeMap::<(&str, &str), (u64, Work, f64)>::new();
        for (kernel, shape, work, ms) in launches {
            let sum = sums.entry((kernel, shape)).or_default();
            sum.0 += 1;
            sum.1.operations += work.operations;
            sum.1.bytes += work.bytes;
            sum.2 += ms;
        }
        let mut rows: Vec<Row> = sums
            .into_iter()
            .map(|((kernel, shape), (calls, work, total_ms))| Row {
                kernel: kernel.into(),
                shape: shape.into(),
                calls,
                total_ms,
                work,
            })
            .collect();
        rows.sort_by(|a, b| b.total_ms.total_cmp(&a.total_ms));
        Self { rows }
    }

    /// Milliseconds of all launches.
    #[must_use]
    pub fn total_ms(&self) -> f64 {
        self.rows.iter().map(|row| row.total_ms).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |text: fn(&Row) -> &str, title: &str| {
            self.rows.iter().map(|row| text(row).chars().count()).chain([title.len()]).max().unwrap_or(0)
        };
        let (kernel, shape) = (width(|row| &row.kernel, "kernel"), width(|row| &row.shape, "shape"));
        writeln!(
            f,
            "{:kernel$}  {:shape$}  {:>7}  {:>10}  {:>9}  {:>6}  rate",
            "kernel", "shape", "calls", "total ms", "mean us", "share"
        )?;
        let all = self.total_ms();
        for row in &self.rows {
            write!(
                f,
                "{:kernel$}  {:shape$}  {:>7}  {:>10.3}  {:>9.1}  {:>5.1}%  ",
                row.kernel,
                row.shape,
                row.calls,
                row.total_ms,
                row.mean_ms() * 1e3,
                row.total_ms / all * 100.0
            )?;
            if row.work.operations > 0 {
                writeln!(f, "{:.1} TFLOP/s", row.tera_operations())?;
            } else {
                writeln!(f, "{:.1} GB/s", row.gigabytes())?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Two products of 2 * 4096^3 operations in 2 ms are 137.4 TFLOP/s; 4 MB in 10 us are 400 GB/s.
    #[test]
    fn launches_are_summed_by_kernel_and_shape_and_the_longest_comes_first() {
        let product = Work { operations: 2 * 4096u64.pow(3), bytes: 1 };
        let copy = Work { operations: 0, bytes: 4_000_000 };
        let report = Report::of([
            ("norm", "4096", copy, 0.010),
            ("w4a8", "4096x4096x4096", product, 0.9),
            ("w4a8", "4096x4096x4096", product, 1.1),
            ("w4a8", "1x4096x4096", Work::default(), 0.5),
        ]);
        let names: Vec<_> = report.rows.iter().map(|row| (&*row.kernel, &*row.shape, row.calls)).collect();
        assert_eq!(names, [("w4a8", "4096x4096x4096", 2), ("w4a8", "1x4096x4096", 1), ("norm", "4096", 1)]);
        assert!((report.total_ms() - 2.51).abs() < 1e-12);
        let text = report.to_string();
        let line = |i: usize| text.lines().nth(i).unwrap_or_default().split_whitespace().collect::<Vec<_>>();
        assert_eq!(line(1), ["w4a8", "4096x4096x4096", "2", "2.000", "1000.0", "79.7%", "137.4", "TFLOP/s"]);
        assert_eq!(line(3), ["norm", "4096", "1", "0.010", "10.0", "0.4%", "400.0", "GB/s"]);
    }

    #[test]
    fn nothing_launched_is_a_table_of_its_head() {
        assert_eq!(Report::default().to_string().lines().count(), 1);
    }
}
