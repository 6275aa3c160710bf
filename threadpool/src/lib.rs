//! threadpool
