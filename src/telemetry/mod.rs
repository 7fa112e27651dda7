//! Every metric's name and label, and the log's form, in one place. Nothing is measured here.

pub mod logging;

use std::sync::LazyLock;

use prometheus::{
    Encoder, Gauge, GaugeVec, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts,
    Registry, TextEncoder,
};

/// All metrics of the process.
pub static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// The metrics; each field's name is its metric's, without the prefix `judge_relay_`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Submissions answered, by answer.
    pub submissions_total: IntCounterVec,
    /// Outbox rows leased, by destination kind.
    pub outbox_claimed_total: IntCounterVec,
    /// Outbox rows appended to a stream and marked.
    pub outbox_published_total: IntCounterVec,
    /// Rows whose fence had moved on when they were to be marked.
    pub outbox_claim_lost_total: IntCounter,
    /// Batches dropped unsent because their lease was about to end.
    pub outbox_lease_expired_total: IntCounter,
    /// Appends that a deduplication key answered.
    pub outbox_dedup_hits_total: IntCounter,
    /// Rows put into quarantine.
    pub outbox_quarantined_total: IntCounter,
    /// Publishing that failed, by cause.
    pub outbox_errors_total: IntCounterVec,
    /// Seconds from the claim to the mark.
    pub outbox_publish_seconds: Histogram,
    /// Unpublished rows, by destination.
    pub outbox_pending: IntGaugeVec,
    /// Age of the oldest unpublished row, by destination.
    pub outbox_oldest_seconds: GaugeVec,
    /// Rows in quarantine now.
    pub outbox_quarantined: IntGauge,
    /// Entries in a stream.
    pub stream_length: IntGaugeVec,
    /// Entries read and not acked.
    pub stream_pending: IntGaugeVec,
    /// Age of a stream's oldest entry since it was appended.
    pub stream_oldest_seconds: GaugeVec,
    /// Seconds an entry waited in its stream before it was read.
    pub stream_delay_seconds: Histogram,
    /// Streams or groups found missing and created again.
    pub stream_losses_total: IntCounterVec,
    /// Entries taken over from a dead or stuck process.
    pub stream_reclaimed_total: IntCounterVec,
    /// POSTs to the controller, by outcome.
    pub dispatch_total: IntCounterVec,
    /// Seconds a POST to the controller took.
    pub dispatch_seconds: Histogram,
    /// Entries that needed no POST, by reason.
    pub dispatch_skipped_total: IntCounterVec,
    /// Attempts at the controller, by lane.
    pub attempts_in_flight: IntGaugeVec,
    /// Live attempts by state.
    pub attempts_live: IntGaugeVec,
    /// 1 while the breaker keeps the dispatcher from the controller.
    pub breaker_open: IntGauge,
    /// Offset of the controller's clock.
    pub controller_clock_offset_seconds: Gauge,
    /// Seconds since anything authentic came from the controller; -1: never.
    pub controller_silent_seconds: Gauge,
    /// Callbacks, by kind and outcome.
    pub callbacks_total: IntCounterVec,
    /// Seconds from a callback's last byte to its answer.
    pub callback_seconds: Histogram,
    /// Finishes by what they did.
    pub results_total: IntCounterVec,
    /// Seconds of the transaction that applies a batch.
    pub apply_seconds: Histogram,
    /// Open submissions, by state.
    pub submissions_open: IntGaugeVec,
    /// Open dead letters, by cause.
    pub dead_letters_open: IntGaugeVec,
    /// Dead rows that vacuum has not removed, by hot table.
    pub table_dead_rows: IntGaugeVec,
    /// Restarts of an actor.
    pub actor_restarts: IntGaugeVec,
    /// 1 while an actor's loop works.
    pub actor_up: IntGaugeVec,
    /// Seconds since an actor's last pass ended.
    pub actor_last_pass_seconds: GaugeVec,
    /// 1 when the last collection of the gauges above succeeded, 0 when they are old.
    pub collector_up: IntGauge,
}

const FAST: &[f64] = &[0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0];

/// Makes and registers; a name that is taken or malformed is a mistake of this file, found by its test.
struct Maker(Registry);

impl Maker {
    fn register(&self, collector: impl prometheus::core::Collector + 'static) {
        if let Err(error) = self.0.register(Box::new(collector)) {
            log::error!("a metric cannot be registered: {error}");
        }
    }

    fn opts(name: &str, help: &str) -> Opts {
        Opts::new(format!("judge_relay_{name}"), help)
    }
}

macro_rules! metric {
    ($maker:expr, $kind:ty, $name:literal, $help:literal $(, $labels:expr)?) => {{
        let made = <$kind>::new_made($name, $help $(, $labels)?);
        $maker.register(made.clone());
        made
    }};
}

/// A uniform way to make the kinds, so that one line of `new` is one metric.
trait Made: Sized {
    fn new_made(name: &str, help: &str) -> Self;
}

/// The same for kinds with labels.
trait MadeWith: Sized {
    fn new_made(name: &str, help: &str, labels: &[&str]) -> Self;
}

#[expect(clippy::expect_used, reason = "a malformed name is a mistake of this file, found by its test")]
mod kinds {
    use super::*;

    macro_rules! plain {
        ($kind:ty) => {
            impl Made for $kind {
                fn new_made(name: &str, help: &str) -> Self {
                    <$kind>::with_opts(Maker::opts(name, help)).expect("metric names are well-formed")
                }
            }
        };
    }

    macro_rules! labelled {
        ($kind:ty) => {
            impl MadeWith for $kind {
                fn new_made(name: &str, help: &str, labels: &[&str]) -> Self {
                    <$kind>::new(Maker::opts(name, help), labels).expect("metric names are well-formed")
                }
            }
        };
    }

    plain!(IntCounter);
    plain!(IntGauge);
    plain!(Gauge);
    labelled!(IntCounterVec);
    labelled!(IntGaugeVec);
    labelled!(GaugeVec);

    impl Made for Histogram {
        fn new_made(name: &str, help: &str) -> Self {
            let opts = HistogramOpts::new(format!("judge_relay_{name}"), help).buckets(FAST.to_vec());
            Histogram::with_opts(opts).expect("metric names are well-formed")
        }
    }
}

impl Metrics {
    fn new() -> Metrics {
        let maker = Maker(Registry::new());
        let m = &maker;
        Metrics {
            submissions_total: metric!(m, IntCounterVec, "submissions_total", "Submissions answered", &["answer"]),
            outbox_claimed_total: metric!(
                m,
                IntCounterVec,
                "outbox_claimed_total",
                "Outbox rows leased",
                &["destination"]
            ),
            outbox_published_total: metric!(
                m,
                IntCounterVec,
                "outbox_published_total",
                "Outbox rows published",
                &["destination"]
            ),
            outbox_claim_lost_total: metric!(m, IntCounter, "outbox_claim_lost_total", "Marks refused by the fence"),
            outbox_lease_expired_total: metric!(
                m,
                IntCounter,
                "outbox_lease_expired_total",
                "Batches dropped unsent, their lease about to end"
            ),
            outbox_dedup_hits_total: metric!(
                m,
                IntCounter,
                "outbox_dedup_hits_total",
                "Appends answered by a deduplication key"
            ),
            outbox_quarantined_total: metric!(m, IntCounter, "outbox_quarantined_total", "Rows put into quarantine"),
            outbox_errors_total: metric!(m, IntCounterVec, "outbox_errors_total", "Publishing that failed", &["cause"]),
            outbox_publish_seconds: metric!(m, Histogram, "outbox_publish_seconds", "From the claim to the mark"),
            outbox_pending: metric!(m, IntGaugeVec, "outbox_pending", "Unpublished rows", &["destination"]),
            outbox_oldest_seconds: metric!(
                m,
                GaugeVec,
                "outbox_oldest_seconds",
                "Age of the oldest unpublished row",
                &["destination"]
            ),
            outbox_quarantined: metric!(m, IntGauge, "outbox_quarantined", "Rows in quarantine"),
            stream_length: metric!(m, IntGaugeVec, "stream_length", "Entries in a stream", &["stream"]),
            stream_pending: metric!(m, IntGaugeVec, "stream_pending", "Entries read and not acked", &["stream"]),
            stream_oldest_seconds: metric!(
                m,
                GaugeVec,
                "stream_oldest_seconds",
                "Age of the oldest entry since it was appended",
                &["stream"]
            ),
            stream_delay_seconds: metric!(
                m,
                Histogram,
                "stream_delay_seconds",
                "From the event to its reading from the stream"
            ),
            stream_losses_total: metric!(
                m,
                IntCounterVec,
                "stream_losses_total",
                "Streams or groups created again",
                &["stream"]
            ),
            stream_reclaimed_total: metric!(
                m,
                IntCounterVec,
                "stream_reclaimed_total",
                "Entries met by the reaper",
                &["outcome"]
            ),
            dispatch_total: metric!(m, IntCounterVec, "dispatch_total", "POSTs to the controller", &["outcome"]),
            dispatch_seconds: metric!(m, Histogram, "dispatch_seconds", "A POST to the controller"),
            dispatch_skipped_total: metric!(
                m,
                IntCounterVec,
                "dispatch_skipped_total",
                "Entries that needed no POST",
                &["reason"]
            ),
            attempts_in_flight: metric!(m, IntGaugeVec, "attempts_in_flight", "Attempts at the controller", &["lane"]),
            attempts_live: metric!(m, IntGaugeVec, "attempts_live", "Live attempts", &["state"]),
            breaker_open: metric!(m, IntGauge, "breaker_open", "1 while the controller is not asked"),
            controller_clock_offset_seconds: metric!(
                m,
                Gauge,
                "controller_clock_offset_seconds",
                "The controller's clock minus ours"
            ),
            controller_silent_seconds: metric!(
                m,
                Gauge,
                "controller_silent_seconds",
                "Since the controller was heard; -1: never"
            ),
            callbacks_total: metric!(m, IntCounterVec, "callbacks_total", "Callbacks", &["kind", "outcome"]),
            callback_seconds: metric!(m, Histogram, "callback_seconds", "From a callback's last byte to its answer"),
            results_total: metric!(m, IntCounterVec, "results_total", "Finishes by what they did", &["disposition"]),
            apply_seconds: metric!(m, Histogram, "apply_seconds", "The transaction that applies a batch"),
            submissions_open: metric!(m, IntGaugeVec, "submissions_open", "Open submissions", &["state"]),
            dead_letters_open: metric!(m, IntGaugeVec, "dead_letters_open", "Open dead letters", &["cause"]),
            table_dead_rows: metric!(m, IntGaugeVec, "table_dead_rows", "Dead rows of hot tables", &["table"]),
            actor_restarts: metric!(m, IntGaugeVec, "actor_restarts", "Restarts since the process began", &["actor"]),
            actor_up: metric!(m, IntGaugeVec, "actor_up", "1 while the actor works", &["actor"]),
            actor_last_pass_seconds: metric!(
                m,
                GaugeVec,
                "actor_last_pass_seconds",
                "Since the last pass ended",
                &["actor"]
            ),
            collector_up: metric!(m, IntGauge, "collector_up", "1 when the gauges of tables and streams are fresh"),
            registry: maker.0,
        }
    }

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
