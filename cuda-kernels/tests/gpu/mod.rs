//! A GPU to test on: a real one if there is one, else the emulator.

#![allow(dead_code, clippy::unwrap_used, reason = "each test uses a part of it, and fails by panicking")]

use half::bf16;
use halfbyte_cuda_driver::{Context, Driver};
use halfbyte_cuda_emulator::{Emulator, EmulatorConfig, Entered};
use halfbyte_testing::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Runs `test` in a context, and with the emulator if that is what it runs on. Says which, and fails when an emulated
/// kernel did something wrong or something is left over.
pub(crate) fn on_gpu(config: EmulatorConfig, test: impl FnOnce(&Context, Option<&Emulator>)) {
    if let Ok(driver) = Driver::load()
        && driver.device(0).is_ok_and(|device| device.name().is_ok_and(|name| !name.contains("emulator")))
    {
        let device = driver.device(0).unwrap();
        eprintln!("on {}", device.name().unwrap());
        return test(&Context::primary(device).unwrap(), None);
    }
    let emulator = Emulator::new(config).unwrap();
    eprintln!(
        "on {}, seed {}, {:?}",
        emulator.config().name,
        emulator.config().seed,
        emulator.config().schedule
    );
    let entered: Entered<'_> = emulator.enter();
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let context = Context::primary(Driver::load().unwrap().device(0).unwrap()).unwrap();
        test(&context, Some(&emulator));
    }));
    // A kernel's fault says more than the error that the test has met.
    for fault in emulator.faults() {
        eprintln!("{fault}");
    }
    if let Err(panic) = outcome {
        resume_unwind(panic);
    }
    assert!(emulator.faults().is_empty());
    emulator.check_leaks().unwrap();
    drop(entered);
}

/// About normal numbers, times `scale`.
pub(crate) fn bf16s(random: &mut Rng, count: usize, scale: f32) -> Vec<bf16> {
    (0..count).map(|_| bf16::from_f32((random.f32() + random.f32() + random.f32()) * scale)).collect()
}
