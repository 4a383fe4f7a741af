//! Time of the analyzer `rules` and of the policy for one tool call, over the corpus of commands.

use std::{hint::black_box, time::Instant};

use greenroom::{
    approvals::{Analyzers, AssessedCall, PolicyInput, decide},
    config::Config,
};
use greenroom_protocol::{Action, approval::ApprovalMode};

use crate::figures::{Figures, table};

/// Commands with their expected risk, one a line.
const CORPUS: &str = include_str!("../../src/approvals/risk_rules/corpus.txt");

/// Rounds over the corpus.
const ROUNDS: usize = 50;

const WORKSPACE: &str = "/workspace";

pub(crate) async fn run() {
    let lines = CORPUS.lines().filter_map(|line| line.split_once('\t')).filter(|(level, _)| !level.starts_with('#'));
    let calls: Vec<Action> = lines.map(|(_, command)| Action::Run { command: command.replace("\\n", "\n") }).collect();
    let analyzers = Analyzers::new(&Config::with_data_dir("/x").approvals).expect("the defaults work");
    let analyzer = analyzers.get("rules").expect("the analyzer is always there");
    let (mut assessments, mut decisions) = (Figures::default(), Figures::default());
    for _ in 0..ROUNDS {
        for call in &calls {
            let began = Instant::now();
            let assessed = AssessedCall { call, session: "s", workspace: WORKSPACE, agent: "greenroom" };
            let risk = analyzer.assess(assessed).await;
            assessments.add_ms(began.elapsed());
            let began = Instant::now();
            let risk = Some(&risk);
            let rules = [&[][..], &[], &[]];
            let mode = ApprovalMode::Auto;
            black_box(decide(PolicyInput { call, mode, workspace: WORKSPACE, agent: "greenroom", risk, rules }));
            decisions.add_ms(began.elapsed());
        }
    }
    let row = |name: &str, figures: &Figures| {
        let micros = |percent| format!("{:.1}", figures.p(percent) * 1000.0);
        vec![name.to_owned(), micros(50), micros(95), micros(99)]
    };
    let rows = [row("analyzer `rules`", &assessments), row("policy", &decisions)];
    let title = format!("Approvals: time for one of {} commands", calls.len());
    table(&title, &["", "p50, µs", "p95, µs", "p99, µs"], &rows);
}
