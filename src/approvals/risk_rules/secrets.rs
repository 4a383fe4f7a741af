//! Secrets inside texts.

use super::RiskFindings;

/// Beginnings of keys, with the least number of further letters, digits, `-` and `_`.
const KEY_STARTS: [(&str, usize, &str); 16] = [
    ("AKIA", 16, "an AWS key"),
    ("ASIA", 16, "an AWS key"),
    ("AIza", 30, "a Google key"),
    ("ghp_", 20, "a GitHub token"),
    ("gho_", 20, "a GitHub token"),
    ("ghs_", 20, "a GitHub token"),
    ("github_pat_", 20, "a GitHub token"),
    ("glpat-", 16, "a GitLab token"),
    ("npm_", 30, "an npm token"),
    ("pypi-", 30, "a PyPI token"),
    ("sk-", 20, "an API key"),
    ("sk_live_", 16, "a Stripe key"),
    ("xoxb-", 16, "a Slack token"),
    ("xoxp-", 16, "a Slack token"),
    ("hf_", 30, "a Hugging Face token"),
    ("eyJ", 40, "a signed token"),
];

/// Names whose value is a secret.
const SECRET_NAMES: [&str; 8] = ["password", "passwd", "secret", "token", "api_key", "apikey", "api-key", "access_key"];

/// Adds a finding for a secret in the text.
pub(super) fn find(text: &str, findings: &mut RiskFindings) {
    for (start, length, what) in KEY_STARTS {
        if text.match_indices(start).any(|(at, _)| is_key(text, at, start.len(), length)) {
            findings.high(format!("contains {what}"));
        }
    }
    if text.contains("-----BEGIN") && text.contains("PRIVATE KEY") {
        findings.high("contains a private key");
    }
    let lower = text.to_ascii_lowercase();
    if lower.match_indices("bearer ").any(|(at, word)| has_value(&lower[at + word.len()..], 16)) {
        findings.high("contains a bearer token");
    }
    for name in SECRET_NAMES {
        let is_set = lower.match_indices(name).any(|(at, _)| {
            let rest = &lower[at + name.len()..];
            let value = rest
                .strip_prefix('=')
                .or_else(|| rest.strip_prefix(": "))
                .or_else(|| lower[..at].ends_with("--").then(|| rest.strip_prefix(' ')).flatten());
            value.is_some_and(|value| has_value(value.trim_start_matches(['"', '\'']), 4))
        });
        if is_set {
            findings.medium(format!("sets a {name} on the command line"));
        }
    }
}

/// Returns true if the text begins with a value of at least `length` bytes, and no variable.
fn has_value(text: &str, length: usize) -> bool {
    text.bytes().take_while(|b| b.is_ascii_alphanumeric() || b"-_.~+/=!@#%^&*".contains(b)).count() >= length
}

fn is_key(text: &str, at: usize, start: usize, length: usize) -> bool {
    let is_inner = text[..at].chars().next_back().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let rest = text[at + start..].bytes();
    !is_inner && rest.take_while(|b| b.is_ascii_alphanumeric() || *b == b'-' || *b == b'_').count() >= length
}
