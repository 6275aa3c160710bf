//! Counters of the server, in Prometheus' text format.

use prometheus::core::Collector;
use prometheus::{Encoder as _, Histogram, HistogramOpts, IntCounter, IntGauge, Registry, TextEncoder};

/// The counters. Those of tokens and time are written by the thread that computes.
#[derive(Clone, Debug)]
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) completed: IntCounter,
    pub(crate) failed: IntCounter,
    pub(crate) cancelled: IntCounter,
    pub(crate) refused: IntCounter,
    pub(crate) prompt_tokens: IntCounter,
    pub(crate) reused_tokens: IntCounter,
    pub(crate) reply_tokens: IntCounter,
    pub(crate) passes: IntCounter,
    pub(crate) queued: IntGauge,
    pub(crate) busy: IntGauge,
    pub(crate) first_token: Histogram,
}

impl Metrics {
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counter = |name: &str, help: &str| add(&registry, IntCounter::new(name, help)?);
        let gauge = |name: &str, help: &str| add(&registry, IntGauge::new(name, help)?);
        let seconds = HistogramOpts::new(
            "halfbyte_first_token_seconds",
            "Time from a request's arrival in the queue to its first token.",
        )
        .buckets(vec![0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0]);
        let counted = Self {
            completed: counter("halfbyte_replies_completed_total", "Replies that came to their end.")?,
            failed: counter("halfbyte_replies_failed_total", "Replies that an error ended.")?,
            cancelled: counter(
                "halfbyte_replies_cancelled_total",
                "Replies whose client left before the end.",
            )?,
            refused: counter("halfbyte_requests_refused_total", "Requests answered with an error.")?,
            prompt_tokens: counter("halfbyte_prompt_tokens_total", "Prompt tokens computed.")?,
            reused_tokens: counter(
                "halfbyte_prompt_tokens_reused_total",
                "Prompt tokens found in a context.",
            )?,
            reply_tokens: counter("halfbyte_reply_tokens_total", "Tokens chosen.")?,
            passes: counter("halfbyte_passes_total", "Forward passes; replies under way share them.")?,
            queued: gauge("halfbyte_requests_queued", "Requests that wait for a slot.")?,
            busy: gauge("halfbyte_slots_busy", "Slots with a reply under way.")?,
            first_token: add(&registry, Histogram::with_opts(seconds)?)?,
            registry: registry.clone(),
        };
        Ok(counted)
    }

    /// All of them as text, and the type of that text.
    pub(crate) fn render(&self) -> Result<(String, String), prometheus::Error> {
        let encoder = TextEncoder::new();
        let mut text = Vec::new();
        encoder.encode(&self.registry.gather(), &mut text)?;
        Ok((encoder.format_type().to_owned(), String::from_utf8_lossy(&text).into_owned()))
    }
}

/// Puts `metric` into the registry, and returns it: clones share the number.
fn add<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> Result<M, prometheus::Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
