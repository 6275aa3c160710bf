//! The sampler that the options ask for.

use std::hash::{BuildHasher, RandomState};

use anyhow::Result;
use halfbyte::sampler::{Sampler, SamplerConfig};

use super::args::SamplingArgs;
use super::loading::LoadedModel;

/// The sampler, with the seed given or a new one short enough to be typed again.
pub(crate) fn sampler(args: &SamplingArgs) -> Result<Sampler> {
    // The standard library's hasher starts from the system's random numbers.
    let seed = args.seed.unwrap_or_else(|| RandomState::new().hash_one(()) >> 32);
    let config = SamplerConfig {
        temperature: args.temperature,
        top_k: args.top_k,
        top_p: args.top_p,
        min_p: args.min_p,
        repeat_penalty: args.repeat_penalty,
        seed,
        ..SamplerConfig::default()
    };
    Ok(Sampler::new(config)?)
}

/// The settings on one line, and where tokens are chosen if that may be the device.
pub(crate) fn summary(sampler: &Sampler, model: &LoadedModel) -> String {
    let c = sampler.config();
    let mut text = if c.temperature == 0.0 {
        "greedy".to_owned()
    } else {
        format!(
            "temperature {}, top-k {}, top-p {}, min-p {}, seed {}",
            c.temperature, c.top_k, c.top_p, c.min_p, c.seed
        )
    };
    if let Some(device) = model.engine.cuda() {
        // Draws are never made on the device: a seed means the same on every device.
        let on_device = sampler.is_greedy() && device.is_greedy();
        text += if on_device { ", on the device" } else { ", on the CPU" };
    }
    text
}
