//! The tensors of a model, found by name, checked by shape, used where they lie or packed for the kernels.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use halfbyte_cpu_kernels::{Context, Isa, Matrix, PackedMatrix, Weights};
use halfbyte_gguf::TensorInfo;

use super::description::{Description, Layer, MatrixId, MatrixInfo, VectorId, VectorInfo};
use super::{Compute, Error};
use crate::source::{ModelFile, Source};

/// The weights that a [`Description`] names.
#[derive(Clone, Debug)]
pub(crate) struct ModelWeights {
    file: Arc<ModelFile>,
    matrices: Vec<Weight>,
    vectors: Vec<Arc<[f32]>>,
}

/// A weight matrix.
#[derive(Clone, Debug)]
enum Weight {
    /// Where the file has it.
    InPlace { tensor: TensorInfo, rows: Range<usize> },
    /// In the order in which kernels read it.
    Packed(PackedMatrix),
    /// In memory of its own, row after row.
    Own { values: Arc<[f32]>, rows: usize, cols: usize },
}

impl ModelWeights {
    /// Finds every tensor that `description` names, and refuses a file that has others. No weight is copied but vectors.
    ///
    /// # Errors
    /// A tensor that is missing, superfluous, of the wrong shape or of an unsupported type, by its name.
    pub(super) fn new(file: Arc<ModelFile>, description: &Description) -> Result<Self, Error> {
        let source: &dyn Source = &**file;
        let vectors = description.vectors.iter().map(|info| part_of_vector(source, info));
        let vectors = vectors.collect::<Result<_, _>>()?;
        let matrices = description.matrices.iter().map(|info| in_place(source, info));
        let matrices = matrices.collect::<Result<_, _>>()?;
        let names = description.matrices.iter().map(|info| info.tensor.as_str());
        let names = names.chain(description.vectors.iter().map(|info| info.tensor.as_str()));
        let names = names.chain(description.unused.iter().map(String::as_str));
        let used: HashSet<&str> = names.collect();
        if let Some(extra) = source.tensors().iter().find(|tensor| !used.contains(tensor.name.as_str())) {
            let (tensor, architecture) = (extra.name.clone(), description.architecture);
            return Err(Error::ExtraTensor { tensor, architecture });
        }
        Ok(Self { file, matrices, vectors })
    }

    /// The file that the weights are from.
    pub(crate) fn file(&self) -> &Arc<ModelFile> {
        &self.file
    }

    /// A matrix, for kernels.
    pub(crate) fn matrix(&self, id: MatrixId) -> Matrix<'_> {
        self.matrices[id.0].matrix(&self.file)
    }

    /// A vector.
    pub(crate) fn vector(&self, id: VectorId) -> &[f32] {
        &self.vectors[id.0]
    }

    /// Puts `values`, row after row, in the place of a matrix.
    ///
    /// # Panics
    /// If they are not as many as the matrix has.
    pub(super) fn replace(&mut self, id: MatrixId, values: Vec<f32>) {
        let (rows, cols) = (self.matrix(id).rows(), self.matrix(id).cols());
        assert_eq!(values.len(), rows * cols, "weights in the place of a matrix of {rows} x {cols}");
        self.matrices[id.0] = Weight::Own { values: values.into(), rows, cols };
    }

    /// Whether a matrix is packed.
    pub(super) fn is_packed(&self, id: MatrixId) -> bool {
        matches!(self.matrices[id.0], Weight::Packed(_))
    }

    /// Packs what can be, a batch at a time, and gives the file's pages back after each. So the most memory in use is
    /// what is packed and one batch of the file. The output matrix, the largest of a small model, comes first, when
    /// nothing else is packed yet. Experts stay where they are if all matrices together have more than `most` bytes.
    pub(super) fn pack(
        &mut self,
        compute: &Compute,
        description: &Description,
        most: Option<u64>,
    ) -> Result<(), Error> {
        let ctx = compute.context();
        let mut batch = Vec::new();
        let mut bytes = 0;
        let total: usize = description.products().map(|id| self.matrix(id).bytes()).sum();
        let experts = if most.is_none_or(|most| total as u64 <= most) { usize::MAX } else { 0 };
        if experts == 0 && description.layers.iter().any(Layer::has_experts) {
            tracing::info!(
                "the model's {total} bytes do not fit into memory: experts stay in the mapped file"
            );
        }
        let layers = description.layers.iter().flat_map(|layer| layer.some_products(experts));
        for id in std::iter::once(description.output).chain(layers) {
            let weight = &self.matrices[id.0];
            if !matches!(weight, Weight::Packed(_)) && self.matrix(id).supports_packing() {
                bytes += self.matrix(id).bytes();
                batch.push(id);
            }
            if bytes >= PACK_BATCH {
                self.pack_batch(ctx, &mut batch)?;
                bytes = 0;
            }
        }
        self.pack_batch(ctx, &mut batch)
    }

    /// Packs and empties a batch.
    fn pack_batch(&mut self, ctx: Context<'_>, batch: &mut Vec<MatrixId>) -> Result<(), Error> {
        let matrices: Vec<_> = batch.iter().map(|&id| self.matrix(id)).collect();
        let packed = PackedMatrix::pack_all(ctx, &matrices)?;
        for (id, packed) in batch.drain(..).zip(packed) {
            self.matrices[id.0] = Weight::Packed(packed);
        }
        self.file.release_pages();
        Ok(())
    }
}

/// Bytes that are packed together: large enough for huge pages to be filled, small beside a model.
const PACK_BATCH: usize = 32 << 20;

impl Weight {
    fn matrix<'a>(&'a self, source: &'a ModelFile) -> Matrix<'a> {
        let matrix = match self {
            Self::InPlace { tensor, rows } => tensor_rows(&**source, tensor, rows),
            Self::Packed(packed) => return packed.as_matrix(),
            Self::Own { values, rows, cols } => {
                Matrix::new(Weights::F32(values), *rows, *cols).map_err(Into::into)
            }
        };
        // The same calls succeeded when the weights were found, on the same bytes and sizes.
        matrix.unwrap_or_else(|error| unreachable!("a matrix that was checked before: {error}"))
    }
}

/// The matrix that `info` means, checked.
fn in_place(source: &dyn Source, info: &MatrixInfo) -> Result<Weight, Error> {
    let tensor = source.tensor(&info.tensor)?;
    // Experts' matrices are stacked: of a tensor with three dimensions each matrix is one part, or lies within one.
    let is_stacked = matches!(*tensor.dims, [cols, rows, n] if (cols, rows.checked_mul(n)) == (info.cols, Some(info.tensor_rows))
        && info.rows.start / rows == info.rows.end.saturating_sub(1) / rows);
    if !is_stacked {
        shape(tensor, &[info.cols, info.tensor_rows])?;
    }
    tensor_rows(source, tensor, &info.rows)?;
    Ok(Weight::InPlace { tensor: tensor.clone(), rows: info.rows.clone() })
}

fn tensor_rows<'a>(
    source: &'a dyn Source,
    tensor: &TensorInfo,
    rows: &Range<usize>,
) -> Result<Matrix<'a>, Error> {
    let matrix = tensor_matrix(source, tensor)?;
    if *rows == (0..matrix.rows()) { Ok(matrix) } else { Ok(matrix.row_range(rows.clone())?) }
}

fn shape(info: &TensorInfo, expected: &[usize]) -> Result<(), Error> {
    if info.dims == expected {
        Ok(())
    } else {
        let (expected, got) = (expected.to_vec(), info.dims.to_vec());
        Err(Error::TensorShape { tensor: info.name.clone(), expected, got })
    }
}

/// Tensor `info` in place as a matrix of its rows, whatever its dimensions.
pub(crate) fn tensor_matrix<'a>(source: &'a dyn Source, info: &TensorInfo) -> Result<Matrix<'a>, Error> {
    Ok(Matrix::new(source.weights(info)?, info.n_rows(), info.row_len())?)
}

fn part_of_vector(source: &dyn Source, info: &VectorInfo) -> Result<Arc<[f32]>, Error> {
    let Some(row_len) = info.row_len else {
        return Ok(vector(source, &info.tensor, info.tensor_len)?[info.range.clone()].into());
    };
    let tensor = source.tensor(&info.tensor)?;
    shape(tensor, &[row_len, info.tensor_len / row_len])?;
    let rows = numbers(source, tensor)?;
    let columns = (0..row_len).flat_map(|column| rows.iter().skip(column).step_by(row_len).copied());
    Ok(columns.skip(info.range.start).take(info.range.len()).collect())
}

/// The norm, bias or factors called `name`, as f32.
pub(crate) fn vector(source: &dyn Source, name: &str, len: usize) -> Result<Vec<f32>, Error> {
    let info = source.tensor(name)?;
    // A vector may be stored as a matrix of one row, and those of experts as the rows of one matrix.
    if info.dims.len() != 2 || info.dims.iter().product::<usize>() != len {
        shape(info, &[len])?;
    }
    numbers(source, info)
}

/// The numbers of a tensor, as f32.
fn numbers(source: &dyn Source, info: &TensorInfo) -> Result<Vec<f32>, Error> {
    match source.weights(info)? {
        Weights::F32(v) => Ok(v.to_vec()),
        Weights::F16(v) => Ok(v.iter().map(|v| v.to_f32()).collect()),
        Weights::Bf16(v) => Ok(v.iter().map(|v| v.to_f32()).collect()),
        // MLX quantizes the gates of shared experts, which are matrices of one row to it.
        _ if info.dims.len() == 2 => {
            let (matrix, isa) = (tensor_matrix(source, info)?, Isa::best()?);
            let mut rows = vec![0.0; matrix.rows() * matrix.cols()];
            for (n, row) in rows.chunks_exact_mut(matrix.cols()).enumerate() {
                matrix.decode_row(isa, n, row)?;
            }
            Ok(rows)
        }
        _ => Err(Error::VectorType { tensor: info.name.clone(), got: info.ty.name() }),
    }
}
