//! cpu-kernels
