//! A part of a matrix is the same as a matrix of that part.

use crate::support::{FLOAT_ONLY, INT8, Rng, assert_same, plain};
use halfbyte_cpu_kernels::{Matrix, PackedMatrix, Weights, reference};

#[test]
fn a_range_of_rows_is_the_matrix_of_those_rows() {
    let seed = 61;
    println!("seed {seed}");
    let mut rng = Rng(seed);
    for format in INT8.into_iter().chain(FLOAT_ONLY) {
        let (rows, cols) = (7, 2 * format.group());
        let stored = format.random(rows, cols, &mut rng);
        let whole = stored.rows(0, rows, cols);
        for (first, end) in [(0, 7), (0, 3), (3, 7), (6, 7), (4, 4)] {
            let part = whole.row_range(first..end).unwrap();
            let expected = stored.rows(first, end - first, cols);
            assert_eq!((part.rows(), part.cols(), part.bytes()), (end - first, cols, expected.bytes()));
            for row in 0..part.rows() {
                let decoded = |m: &Matrix<'_>| {
                    let mut values = vec![f32::NAN; cols];
                    m.decode_row(plain().isa, row, &mut values).unwrap();
                    values
                };
                assert_same(
                    &decoded(&part),
                    &decoded(&expected),
                    &format!("{format:?} row {row} of {first}"),
                );
                assert_eq!(
                    reference::weight(&part, row, cols - 1),
                    reference::weight(&whole, first + row, cols - 1)
                );
            }
        }
    }
}

#[test]
fn rows_that_are_not_there_are_named() {
    let m = Matrix::new(Weights::F32(&[0.0; 6]), 3, 2).unwrap();
    let message = |m: &Matrix<'_>, first, end| m.row_range(first..end).unwrap_err().to_string();
    assert_eq!(message(&m, 1, 4), "end of the rows within the matrix: expected 3, got 4");
    assert_eq!(message(&m, 2, 1), "start of the rows before their end: expected 1, got 2");
    let packed = PackedMatrix::new(plain(), &m).unwrap();
    assert_eq!(
        message(&packed.as_matrix(), 0, 1),
        "row_range does not support packed F32; supported: matrices before they are packed"
    );
}
