//! The model inside the program against logits that NumPy computed in float64 from the same file.

use crate::common::recorded::assert_recorded_logits;
use halfbyte::model::Model;
use halfbyte_cpu_kernels::{Context, Isa};
use halfbyte_threadpool::ThreadPool;

#[test]
fn every_isa_gives_the_recorded_logits_and_continuations() {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).expect("the embedded model opens");
    let model = Model::from_gguf(&gguf).expect("the embedded model loads");
    let pool = ThreadPool::new(2).expect("a pool");
    for isa in Isa::available() {
        assert_recorded_logits(&model, Context { pool: &pool, isa }, "tiny_logits.json");
    }
}
