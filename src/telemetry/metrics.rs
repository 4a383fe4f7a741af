//! Counters and histograms for Prometheus.
//!
//! All series with known labels exist from the start, at zero. Without that, the first increase of
//! a counter is invisible to a monitor. Labels from outside are bounded: unknown values share
//! `other`.

use std::{sync::LazyLock, time::Duration};

use prometheus::{
    Counter, CounterVec, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Opts,
    Registry,
    core::{Collector, Desc},
    process_collector::ProcessCollector,
    proto::MetricFamily,
};
use rustix::time::{ClockId, clock_gettime};

/// Metrics of this process.
pub static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::new);

/// Label for models, methods and states that are not known beforehand.
pub const OTHER: &str = "other";

/// Methods and statuses of answered requests.
const METHODS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", OTHER];
const STATUSES: [&str; 28] = [
    "101", "200", "201", "202", "204", "206", "303", "304", "400", "401", "402", "403", "404", "405", "408", "409",
    "412", "413", "415", "416", "422", "426", "429", "431", "500", "503", "507", OTHER,
];

/// Kinds of tokens that a model call uses.
const TOKEN_KINDS: [&str; 4] = ["input", "output", "cache_read", "cache_write"];

/// Upper limits of the buckets of each histogram, seconds.
const START_BUCKETS: [f64; 13] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0];
const INTERRUPT_BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
const COMMIT_BUCKETS: [f64; 13] =
    [0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0];

/// Part that restarted by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartedPart {
    /// Session actor that stopped unexpectedly.
    Session,
    /// Agent that exited before its first `hello`, or did not stop otherwise.
    Agent,
}

impl RestartedPart {
    const ALL: [RestartedPart; 2] = [RestartedPart::Session, RestartedPart::Agent];

    fn name(self) -> &'static str {
        match self {
            RestartedPart::Session => "session",
            RestartedPart::Agent => "agent",
        }
    }
}

/// Usage of one model call, as it is counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CountedUsage {
    pub input_tokens: u64,
    pub output_tokens: u64,
    pub cache_read_tokens: u64,
    pub cache_write_tokens: u64,
    /// Cost in USD. `None` if the model has no price.
    pub cost_usd: Option<f64>,
}

/// Metrics of this process, with their registry.
pub struct Metrics {
    registry: Registry,
    /// Events made durable in the journal.
    pub events_appended: IntCounter,
    /// Bytes written to the journal's log.
    pub journal_bytes: IntCounter,
    /// Time of a commit, from the write to the end of its sync.
    pub journal_commit: Histogram,
    /// Time from an interrupt until the turn has stopped.
    pub interrupt: Histogram,
    http_requests: IntCounterVec,
    sandbox_start: HistogramVec,
    restarts: IntCounterVec,
    model_calls: IntCounterVec,
    model_errors: IntCounterVec,
    model_tokens: IntCounterVec,
    model_cost: CounterVec,
}

impl Metrics {
    fn new() -> Metrics {
        let registry = Registry::new();
        let metrics = Metrics {
            events_appended: register(&registry, IntCounter::with_opts(events_opts())),
            journal_bytes: register(&registry, IntCounter::with_opts(journal_bytes_opts())),
            journal_commit: register(
                &registry,
                Histogram::with_opts(histogram(
                    "greenroom_journal_commit_seconds",
                    "Time of a commit, from the write to the end of its sync.",
                    &COMMIT_BUCKETS,
                )),
            ),
            interrupt: register(
                &registry,
                Histogram::with_opts(histogram(
                    "greenroom_interrupt_seconds",
                    "Time from an interrupt until the turn has stopped.",
                    &INTERRUPT_BUCKETS,
                )),
            ),
            http_requests: counters(
                &registry,
                "greenroom_http_requests_total",
                "Answered HTTP requests.",
                &["method", "status"],
            ),
            sandbox_start: register(
                &registry,
                HistogramVec::new(
                    histogram(
                        "greenroom_sandbox_start_seconds",
                        "Time from the start of a sandbox until its agent answers.",
                        &START_BUCKETS,
                    ),
                    &["driver"],
                ),
            ),
            restarts: counters(&registry, "greenroom_restarts_total", "Parts that restarted by themselves.", &["part"]),
            model_calls: counters(&registry, "greenroom_model_calls_total", "Model calls that ended.", &MODEL_LABELS),
            model_errors: counters(
                &registry,
                "greenroom_model_errors_total",
                "Model calls that failed.",
                &MODEL_LABELS,
            ),
            model_tokens: counters(
                &registry,
                "greenroom_model_tokens_total",
                "Tokens of model calls.",
                &["provider", "model", "kind"],
            ),
            model_cost: register(
                &registry,
                CounterVec::new(
                    Opts::new("greenroom_model_cost_usd_total", "Cost of model calls with a known price, in USD."),
                    &MODEL_LABELS,
                ),
            ),
            registry,
        };
        let build: IntGaugeVec = register(
            &metrics.registry,
            IntGaugeVec::new(Opts::new("greenroom_build_info", "Version of this program."), &["version", "os", "arch"]),
        );
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        build.with_label_values(&[env!("CARGO_PKG_VERSION"), os, arch]).set(1);
        let process = ProcessMetrics { process: ProcessCollector::for_self(), cpu: cpu_counter() };
        metrics.registry.register(Box::new(process)).expect("the names are registered once");
        for method in METHODS {
            STATUSES.iter().for_each(|status| drop(metrics.http_requests.with_label_values(&[method, *status])));
        }
        RestartedPart::ALL.iter().for_each(|part| drop(metrics.restarts.with_label_values(&[part.name()])));
        metrics
    }

    /// Counts an answered request.
    pub fn count_request(&self, method: &str, status: &str) {
        let known =
            |known: &[&'static str], value: &str| known.iter().copied().find(|known| *known == value).unwrap_or(OTHER);
        self.http_requests.with_label_values(&[known(&METHODS, method), known(&STATUSES, status)]).inc();
    }

    pub fn count_restart(&self, part: RestartedPart) {
        self.restarts.with_label_values(&[part.name()]).inc();
    }

    /// Creates the series of a sandbox driver at zero.
    pub fn declare_driver(&self, driver: &str) {
        drop(self.sandbox_start.with_label_values(&[driver]));
    }

    pub fn observe_start(&self, driver: &str, time: Duration) {
        self.sandbox_start.with_label_values(&[driver]).observe(time.as_secs_f64());
    }

    /// Creates the series of a model at zero.
    pub fn declare_model(&self, provider: &str, model: &str) {
        drop(self.model_calls.with_label_values(&[provider, model]));
        drop(self.model_errors.with_label_values(&[provider, model]));
        drop(self.model_cost.with_label_values(&[provider, model]));
        TOKEN_KINDS.iter().for_each(|kind| drop(self.model_tokens.with_label_values(&[provider, model, *kind])));
    }

    /// Counts a model call that ended. `model` is a declared model or [`OTHER`].
    pub fn count_model_call(&self, provider: &str, model: &str, failed: bool) {
        self.model_calls.with_label_values(&[provider, model]).inc();
        if failed {
            self.model_errors.with_label_values(&[provider, model]).inc();
        }
    }

    /// Counts the usage of a model call. `model` is a declared model or [`OTHER`].
    pub fn count_model_usage(&self, provider: &str, model: &str, usage: CountedUsage) {
        let CountedUsage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd } = usage;
        let counts = [input_tokens, output_tokens, cache_read_tokens, cache_write_tokens];
        for (kind, count) in TOKEN_KINDS.iter().zip(counts) {
            self.model_tokens.with_label_values(&[provider, model, *kind]).inc_by(count);
        }
        // A counter must not fall.
        let cost = cost_usd.filter(|cost| cost.is_finite() && *cost >= 0.0).unwrap_or_default();
        self.model_cost.with_label_values(&[provider, model]).inc_by(cost);
    }

    /// Returns all metrics.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.registry.gather()
    }
}

const MODEL_LABELS: [&str; 2] = ["provider", "model"];

fn events_opts() -> Opts {
    Opts::new("greenroom_events_appended_total", "Events made durable in the journal.")
}

fn journal_bytes_opts() -> Opts {
    Opts::new("greenroom_journal_bytes_total", "Bytes written to the journal's log.")
}

fn cpu_counter() -> Counter {
    Counter::new("process_cpu_seconds_total", "Total user and system CPU time spent in seconds.")
        .expect("the name is valid")
}

fn histogram(name: &str, help: &str, buckets: &[f64]) -> HistogramOpts {
    HistogramOpts::new(name, help).buckets(buckets.to_vec())
}

fn counters(registry: &Registry, name: &str, help: &str, labels: &[&str]) -> IntCounterVec {
    register(registry, IntCounterVec::new(Opts::new(name, help), labels))
}

fn register<C: Collector + Clone + 'static>(registry: &Registry, collector: prometheus::Result<C>) -> C {
    let collector = collector.expect("names, labels and buckets are valid");
    registry.register(Box::new(collector.clone())).expect("the name is registered once");
    collector
}

/// Metrics of the process. The collector of the library rounds the CPU time down to seconds.
struct ProcessMetrics {
    process: ProcessCollector,
    cpu: Counter,
}

impl Collector for ProcessMetrics {
    fn desc(&self) -> Vec<&Desc> {
        self.process.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let time = clock_gettime(ClockId::ProcessCPUTime);
        let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
        self.cpu.inc_by((seconds - self.cpu.get()).max(0.0));
        let mut families = self.process.collect();
        families.retain(|family| family.name() != "process_cpu_seconds_total");
        families.extend(self.cpu.collect());
        families
    }
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    /// Returns the value of a series.
    fn value(metrics: &Metrics, series: &str) -> Option<f64> {
        let text = TextEncoder::new().encode_to_string(&metrics.gather()).expect("the metrics are encoded");
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        let value = lines.next().map(|value| value.parse().expect("a number"));
        assert_eq!(lines.next(), None, "`{series}` exists once");
        value
    }

    #[test]
    fn known_series_exist_at_zero() {
        let metrics = Metrics::new();
        metrics.declare_driver("process");
        metrics.declare_model("anthropic", "claude-x");
        for series in [
            "greenroom_events_appended_total",
            "greenroom_journal_bytes_total",
            "greenroom_journal_commit_seconds_count",
            "greenroom_interrupt_seconds_count",
            "greenroom_sandbox_start_seconds_count{driver=\"process\"}",
            "greenroom_restarts_total{part=\"session\"}",
            "greenroom_restarts_total{part=\"agent\"}",
            "greenroom_http_requests_total{method=\"HEAD\",status=\"404\"}",
            "greenroom_model_calls_total{model=\"claude-x\",provider=\"anthropic\"}",
            "greenroom_model_errors_total{model=\"claude-x\",provider=\"anthropic\"}",
            "greenroom_model_cost_usd_total{model=\"claude-x\",provider=\"anthropic\"}",
            "greenroom_model_tokens_total{kind=\"cache_read\",model=\"claude-x\",provider=\"anthropic\"}",
        ] {
            assert_eq!(value(&metrics, series), Some(0.0), "{series}");
        }
        let version = env!("CARGO_PKG_VERSION");
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let build = format!("greenroom_build_info{{arch=\"{arch}\",os=\"{os}\",version=\"{version}\"}}");
        assert_eq!(value(&metrics, &build), Some(1.0));
    }

    #[test]
    fn cpu_time_has_fractions_and_grows() {
        let metrics = Metrics::new();
        let cpu = || value(&metrics, "process_cpu_seconds_total").expect("the series exists");
        let mut seen = vec![cpu()];
        // Until the clock has moved on twice, by whatever it moves.
        while seen.len() < 3 {
            let now = cpu();
            assert!(now >= seen[seen.len() - 1]);
            if now > seen[seen.len() - 1] {
                seen.push(now);
            }
        }
        assert!(seen.iter().any(|seconds| seconds.fract() != 0.0), "{seen:?}");
        assert!(value(&metrics, "process_open_fds").is_some_and(|open| open > 0.0));
    }

    #[test]
    fn unknown_labels_share_one_series() {
        let metrics = Metrics::new();
        let series = || metrics.gather().iter().map(|family| family.get_metric().len()).sum::<usize>();
        let before = series();
        for n in 0..1000 {
            metrics.count_request(&format!("X{n}"), &format!("{}", 700 + n));
        }
        assert_eq!(series(), before);
        assert_eq!(value(&metrics, "greenroom_http_requests_total{method=\"other\",status=\"other\"}"), Some(1000.0));
    }

    #[test]
    fn usage_is_counted_by_kind_and_absurd_costs_are_not() {
        let metrics = Metrics::new();
        let usage = CountedUsage {
            input_tokens: 1,
            output_tokens: 2,
            cache_read_tokens: 3,
            cache_write_tokens: 4,
            cost_usd: Some(0.25),
        };
        metrics.count_model_usage("openai", "gpt-x", usage);
        for cost_usd in [None, Some(f64::NAN), Some(f64::INFINITY), Some(-1.0)] {
            metrics.count_model_usage("openai", "gpt-x", CountedUsage { cost_usd, ..CountedUsage::default() });
        }
        let labels = "model=\"gpt-x\",provider=\"openai\"";
        for (kind, count) in TOKEN_KINDS.iter().zip([1.0, 2.0, 3.0, 4.0]) {
            let series = format!("greenroom_model_tokens_total{{kind=\"{kind}\",{labels}}}");
            assert_eq!(value(&metrics, &series), Some(count));
        }
        assert_eq!(value(&metrics, &format!("greenroom_model_cost_usd_total{{{labels}}}")), Some(0.25));
    }
}
