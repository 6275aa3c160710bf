//! The model inside the program against logits that NumPy computed in float64 from the same file.

use crate::common::recorded::assert_recorded_logits;
use halfbyte::model::Compute;
use halfbyte_cpu_kernels::Isa;

#[test]
fn every_isa_gives_the_recorded_logits_and_continuations() {
    let gguf = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).expect("the embedded model opens");
    let model = crate::common::transformer(&gguf).expect("the embedded model loads");
    let pool = Compute::new(2).expect("a pool");
    for isa in Isa::available() {
        assert_recorded_logits(&model, &pool.clone().with_isa(isa), "tiny_logits.json");
    }
}
