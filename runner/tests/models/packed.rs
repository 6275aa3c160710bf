//! Packed weights: the same bits, from other places.

use std::ops::ControlFlow;

use halfbyte::model::{ActivationType, Compute, CpuSession, SessionOptions, Transformer};
use halfbyte::requantize::{Encoding, Keep, Plan};
use halfbyte::source;
use halfbyte_cpu_kernels::Isa;
use halfbyte_gguf::GgufWriter;

#[test]
fn packing_changes_no_bit_of_a_logit() {
    let original = halfbyte_gguf::Gguf::open(halfbyte_testing::tiny_model()).unwrap();
    let pool = Compute::new(2).unwrap();
    let ctx = pool.clone();
    let encoding = |name: &str| name.parse::<Encoding>().unwrap();
    let keep = |pattern: &str, ty| Keep { pattern: pattern.to_owned(), encoding: encoding(ty) };
    let mixed = [keep("*attn_v*", "q8_0"), keep("*down*", "f16"), keep("*gate*", "q4_1:max")];
    let directory = tempfile::tempdir().unwrap();
    for (ty, keep) in [("q4_0:fit", &[][..]), ("q4_1:max", &[]), ("q8_0", &[]), ("q4_0:max7", &mixed)] {
        let path = directory.path().join("model.gguf");
        let plan = Plan::new(&original, encoding(ty), keep).unwrap();
        let mut writer = GgufWriter::create(&path, plan.metadata(), plan.tensors()).unwrap();
        plan.write(ctx.context(), &mut writer, &(), |_| ControlFlow::Continue(())).unwrap().unwrap();
        writer.commit().unwrap();
        // Mapped, so that its pages can be given back.
        let model = Transformer::new(source::open(&path).unwrap()).unwrap();
        let packed = model.clone().pack(&ctx).unwrap();
        assert_eq!(packed.int8_matrices(), model.int8_matrices());
        assert_eq!(packed.weights_per_token(), model.weights_per_token());
        let (bytes, more) = (model.bytes_per_token(), packed.bytes_per_token());
        assert!((bytes..bytes + bytes / 50).contains(&more), "{more} bytes, {bytes} in the file");
        for activations in ActivationType::ALL {
            for isa in Isa::available() {
                let ctx = pool.clone().with_isa(isa);
                let options = SessionOptions { activations, ..SessionOptions::new(64) };
                let mut sessions = [&model, &packed].map(|m| CpuSession::new(m, &ctx, options).unwrap());
                // A prompt, then single tokens.
                for ids in [&[5, 700, 2047, 33, 9, 1][..], &[12], &[800]] {
                    let [expected, got] = sessions.each_mut().map(|s| s.feed(ids).unwrap().to_vec());
                    assert!(expected == got, "{ty}, {activations:?}, {isa}");
                }
            }
        }
    }
}
