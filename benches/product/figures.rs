//! Percentiles and tables.

use std::time::Duration;

/// Measured times or other figures, in the caller's unit.
#[derive(Debug, Clone, Default)]
pub(crate) struct Figures(Vec<f64>);

impl FromIterator<f64> for Figures {
    fn from_iter<T: IntoIterator<Item = f64>>(figures: T) -> Figures {
        Figures(figures.into_iter().collect())
    }
}

impl Figures {
    pub(crate) fn add(&mut self, figure: f64) {
        self.0.push(figure);
    }

    pub(crate) fn add_ms(&mut self, time: Duration) {
        self.add(time.as_secs_f64() * 1000.0);
    }

    /// Returns the same figures in another unit.
    pub(crate) fn map(self, convert: impl Fn(f64) -> f64) -> Figures {
        self.0.into_iter().map(convert).collect()
    }

    pub(crate) fn extend(&mut self, others: Figures) {
        self.0.extend(others.0);
    }

    /// Returns the figure below which `percent` of all lie; NaN without figures.
    pub(crate) fn p(&self, percent: usize) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get((sorted.len() * percent / 100).min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Prints a table in Markdown.
pub(crate) fn table(title: &str, head: &[&str], rows: &[Vec<String>]) {
    println!("### {title}\n\n| {} |\n|{}|", head.join(" | "), vec!["---"; head.len()].join("|"));
    for row in rows {
        println!("| {} |", row.join(" | "));
    }
    println!();
}

/// Returns the description of this machine.
pub(crate) fn machine() -> String {
    let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split(' ').next().unwrap_or_default();
    format!(
        "{cores} cores ({}), Linux {}, load {load} at the start",
        model.trim_start_matches([' ', '\t', ':']),
        kernel.split('-').next().unwrap_or_default().trim()
    )
}

pub(crate) fn ms(value: f64) -> String {
    format!("{value:.1} ms")
}

pub(crate) fn times(value: f64, floor: f64) -> String {
    format!("{:.2}×", value / floor)
}
