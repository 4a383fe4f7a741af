//! Analyzer `rules`: fixed rules about commands, files, addresses and secrets. Pure.

mod code;
mod commands;
mod files;
mod git;
mod network;
mod secrets;

use greenroom_protocol::{Action, approval::RiskLevel, tool::ToolKind};

use super::{
    parts::{CallPart, CallPartKind, CallParts, command_line},
    place::Place,
    shell::ShellCommand,
};

/// Findings of one assessment, each once.
#[derive(Debug, Default)]
struct RiskFindings(Vec<(RiskLevel, String)>);

impl RiskFindings {
    fn add(&mut self, level: RiskLevel, reason: impl Into<String>) {
        let reason = reason.into();
        match self.0.iter_mut().find(|(_, known)| *known == reason) {
            Some((known, _)) => *known = level.max(*known),
            None => self.0.push((level, reason)),
        }
    }

    fn high(&mut self, reason: impl Into<String>) {
        self.add(RiskLevel::High, reason);
    }

    fn medium(&mut self, reason: impl Into<String>) {
        self.add(RiskLevel::Medium, reason);
    }

    /// Returns the highest level, and the reasons of each level, highest first.
    fn finish(mut self) -> (RiskLevel, Vec<String>) {
        self.0.sort_by_key(|(level, _)| std::cmp::Reverse(*level));
        let level = self.0.first().map_or(RiskLevel::Low, |(level, _)| *level);
        (level, self.0.into_iter().map(|(_, reason)| reason).collect())
    }
}

/// Returns the risk of a call with its reasons, most important first.
pub(super) fn assess(call: &Action, workspace: &str) -> (RiskLevel, Vec<String>) {
    let mut findings = RiskFindings::default();
    let parts = CallParts::of(call, workspace);
    if let Some(line) = line_of(call) {
        secrets::find(&line, &mut findings);
        code::find_in_line(&line, parts.unclear.is_some(), &mut findings);
    }
    if let Some(unclear) = &parts.unclear {
        findings.high(unclear.0.clone());
    }
    for part in &parts.items {
        assess_part(part, &mut findings);
    }
    let commands: Vec<&ShellCommand> = parts.items.iter().filter_map(CallPart::command).collect();
    code::find_in_pipelines(&commands, &mut findings);
    network::find_leaks(&parts.items, &mut findings);
    assess_tool(call, &parts, &mut findings);
    findings.finish()
}

/// Returns the command line of a call.
fn line_of(call: &Action) -> Option<String> {
    match call {
        Action::Run { command } => Some(command.clone()),
        Action::Tool { kind: ToolKind::Execute, input, .. } => command_line(input),
        _ => None,
    }
}

fn assess_part(part: &CallPart, findings: &mut RiskFindings) {
    match &part.kind {
        CallPartKind::Command(command) => {
            commands::assess(command, findings);
            git::assess(command, findings);
            code::assess(command, findings);
            network::assess(command, &part.hosts, findings);
            files::assess_written(&written_places(command), findings);
            files::assess_read(&part.places, findings);
        }
        CallPartKind::WrittenFile | CallPartKind::Edit => files::assess_written(&part.places, findings),
        CallPartKind::ReadFile | CallPartKind::Other => files::assess_read(&part.places, findings),
    }
    part.hosts.iter().for_each(|host| network::assess_host(host, findings));
}

/// Returns the places that a command writes by its arguments.
fn written_places(command: &ShellCommand) -> Vec<Place> {
    files::written_paths(command).iter().flat_map(|path| command.dirs.places(path)).collect()
}

fn assess_tool(call: &Action, parts: &CallParts, findings: &mut RiskFindings) {
    match call {
        Action::Browse { url } => {
            secrets::find(url, findings);
            network::assess_address(url, findings);
        }
        Action::Tool { kind: ToolKind::Execute, input, .. } if command_line(input).is_none() => {
            findings.medium("runs a program that the call does not name");
        }
        Action::Tool { kind: ToolKind::Delete, .. } => {
            findings.medium("deletes a file");
            files::assess_written(
                &parts.items.iter().flat_map(|part| part.places.clone()).collect::<Vec<_>>(),
                findings,
            );
        }
        Action::Tool { kind: ToolKind::Move, .. } => {
            findings.medium("moves a file");
            files::assess_written(
                &parts.items.iter().flat_map(|part| part.places.clone()).collect::<Vec<_>>(),
                findings,
            );
        }
        Action::Tool { kind: ToolKind::Fetch, input, .. } => {
            secrets::find(&input.to_string(), findings);
            if let Some(url) = input.get("url").and_then(|url| url.as_str()) {
                network::assess_address(url, findings);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
