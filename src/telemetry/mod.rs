//! Every metric's name and label, and the log's form, in one place. Nothing is measured here.

pub mod logging;

use std::sync::LazyLock;

use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

/// All metrics of the process.
pub static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// One line is one metric: its help, its name without the prefix `judge_relay_`, its kind and its labels.
macro_rules! metrics {
    ($($(#[doc = $help:literal])+ $name:ident: $kind:ty $([$($label:literal),+])?,)+) => {
        /// The metrics; each field's name is its metric's, without the prefix `judge_relay_`.
        #[derive(Debug)]
        pub struct Metrics {
            registry: Registry,
            $($(#[doc = $help])+ pub $name: $kind,)+
        }

        impl Metrics {
            fn new() -> Metrics {
                let registry = Registry::new();
                $(let $name = <$kind as Made>::make(
                    &registry,
                    concat!("judge_relay_", stringify!($name)),
                    concat!($($help),+).trim(),
                    &[$($($label),+)?],
                );)+
                Metrics { registry, $($name),+ }
            }
        }
    };
}

metrics! {
    /// Submissions answered, by answer.
    submissions_total: IntCounterVec ["answer"],
    /// Outbox rows leased, by destination kind.
    outbox_claimed_total: IntCounterVec ["destination"],
    /// Outbox rows appended to a stream and marked.
    outbox_published_total: IntCounterVec ["destination"],
    /// Rows whose fence had moved on when they were to be marked.
    outbox_claim_lost_total: IntCounter,
    /// Batches dropped unsent because their lease was about to end.
    outbox_lease_expired_total: IntCounter,
    /// Appends that a deduplication key answered.
    outbox_dedup_hits_total: IntCounter,
    /// Rows put into quarantine.
    outbox_quarantined_total: IntCounter,
    /// Publishing that failed, by cause.
    outbox_errors_total: IntCounterVec ["cause"],
    /// Seconds from the claim to the mark.
    outbox_publish_seconds: Histogram,
    /// Unpublished rows, by destination.
    outbox_pending: IntGaugeVec ["destination"],
    /// Age of the oldest unpublished row, by destination.
    outbox_oldest_seconds: GaugeVec ["destination"],
    /// Rows in quarantine now.
    outbox_quarantined: IntGauge,
    /// Entries in a stream.
    stream_length: IntGaugeVec ["stream"],
    /// Entries read and not acked.
    stream_pending: IntGaugeVec ["stream"],
    /// Age of a stream's oldest entry since it was appended.
    stream_oldest_seconds: GaugeVec ["stream"],
    /// Seconds an entry waited in its stream before it was read.
    stream_delay_seconds: Histogram,
    /// Streams or groups found missing and created again.
    stream_losses_total: IntCounterVec ["stream"],
    /// Entries taken over from a dead or stuck process.
    stream_reclaimed_total: IntCounterVec ["outcome"],
    /// POSTs to the controller, by outcome.
    dispatch_total: IntCounterVec ["outcome"],
    /// Seconds a POST to the controller took.
    dispatch_seconds: Histogram,
    /// Entries that needed no POST, by reason.
    dispatch_skipped_total: IntCounterVec ["reason"],
    /// Attempts at the controller, by lane.
    attempts_in_flight: IntGaugeVec ["lane"],
    /// Live attempts by state.
    attempts_live: IntGaugeVec ["state"],
    /// 1 while the breaker keeps the dispatcher from the controller.
    breaker_open: IntGauge,
    /// Offset of the controller's clock.
    controller_clock_offset_seconds: Gauge,
    /// Seconds since anything authentic came from the controller; -1: never.
    controller_silent_seconds: Gauge,
    /// Callbacks, by kind and outcome.
    callbacks_total: IntCounterVec ["kind", "outcome"],
    /// Seconds from a callback's last byte to its answer.
    callback_seconds: Histogram,
    /// Finishes by what they did.
    results_total: IntCounterVec ["disposition"],
    /// Seconds of the transaction that applies a batch.
    apply_seconds: Histogram,
    /// Open submissions, by state.
    submissions_open: IntGaugeVec ["state"],
    /// Open dead letters, by cause.
    dead_letters_open: IntGaugeVec ["cause"],
    /// Dead rows that vacuum has not removed, by hot table.
    table_dead_rows: IntGaugeVec ["table"],
    /// Restarts of an actor.
    actor_restarts: IntGaugeVec ["actor"],
    /// 1 while an actor's loop works.
    actor_up: IntGaugeVec ["actor"],
    /// Seconds since an actor's last pass ended.
    actor_last_pass_seconds: GaugeVec ["actor"],
    /// 1 when the last collection of the gauges above succeeded, 0 when they are old.
    collector_up: IntGauge,
}

/// Seconds; from half a millisecond to ten seconds, each step about twice the one before.
const SECONDS: [f64; 15] =
    [0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0];

/// A kind of metric that can be made and registered.
trait Made: Sized {
    fn make(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Self;
}

/// Registers what was made; a name that is taken or malformed is a mistake of this file, found by its first use.
#[expect(clippy::expect_used, reason = "names and labels are literals of this file")]
fn registered<C: prometheus::core::Collector + Clone + 'static>(registry: &Registry, made: prometheus::Result<C>) -> C {
    let made = made.expect("the name and the labels are well-formed");
    registry.register(Box::new(made.clone())).expect("the name is not taken");
    made
}

macro_rules! plain {
    ($($kind:ty),+) => {$(
        impl Made for $kind {
            fn make(registry: &Registry, name: &str, help: &str, _: &[&str]) -> Self {
                registered(registry, <$kind>::with_opts(Opts::new(name, help)))
            }
        }
    )+};
}

macro_rules! labelled {
    ($($kind:ty),+) => {$(
        impl Made for $kind {
            fn make(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> Self {
                registered(registry, <$kind>::new(Opts::new(name, help), labels))
            }
        }
    )+};
}

plain!(IntCounter, IntGauge, Gauge);
labelled!(IntCounterVec, IntGaugeVec, GaugeVec);

impl Made for Histogram {
    fn make(registry: &Registry, name: &str, help: &str, _: &[&str]) -> Self {
        let opts = HistogramOpts::new(name, help).buckets(SECONDS.to_vec());
        registered(registry, Histogram::with_opts(opts))
    }
}

impl Metrics {
    /// All metrics in Prometheus's text form.
    pub fn render(&self) -> String {
        let mut out = Vec::new();
        match TextEncoder::new().encode(&self.registry.gather(), &mut out) {
            Ok(()) => String::from_utf8_lossy(&out).into_owned(),
            Err(error) => format!("# the metrics cannot be printed: {error}\n"),
        }
    }
}

/// `judge:contest` and its like are one kind of destination for counters.
pub fn destination_kind(destination: &str) -> &'static str {
    if destination == crate::store::outbox::EVENTS { "events" } else { "judge" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_well_formed_and_named_once_and_can_be_printed() {
        METRICS.outbox_claim_lost_total.inc();
        METRICS.results_total.with_label_values(&["applied"]).inc();
        let text = METRICS.render();
        assert!(text.contains("judge_relay_outbox_claim_lost_total 1"), "{text}");
        assert!(text.contains(r#"judge_relay_results_total{disposition="applied"} 1"#), "{text}");
    }
}
