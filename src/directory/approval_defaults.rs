//! Mode and analyzer of new sessions.

use greenroom_protocol::approval::ApprovalMode;

use crate::{
    config::{ANALYZER_NAMES, Config},
    session::RequestError,
};

/// Approvals of sessions that name no mode or analyzer, and the analyzers that they may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalDefaults {
    pub mode: ApprovalMode,
    pub analyzer: String,
    /// Names of the analyzers that this server has.
    pub analyzers: Vec<&'static str>,
}

impl ApprovalDefaults {
    /// Returns the defaults of a configuration. Without a configured mode, agents that can write to
    /// files of the host ask.
    pub fn of(config: &Config) -> ApprovalDefaults {
        let own_mode = if config.sandbox.writes_to_host() { ApprovalMode::Ask } else { ApprovalMode::Auto };
        let has_service = !config.approvals.http.url.is_empty();
        ApprovalDefaults {
            mode: config.approvals.mode.unwrap_or(own_mode),
            analyzer: config.approvals.analyzer.clone(),
            analyzers: ANALYZER_NAMES.into_iter().filter(|name| *name != "http" || has_service).collect(),
        }
    }

    /// Returns the analyzer of a new session.
    ///
    /// # Errors
    /// This server has no analyzer of that name.
    pub(super) fn choose_analyzer(&self, named: Option<&str>) -> Result<String, RequestError> {
        let name = named.filter(|name| !name.is_empty()).unwrap_or(&self.analyzer);
        if self.analyzers.contains(&name) {
            return Ok(name.to_owned());
        }
        let known: Vec<String> = self.analyzers.iter().map(|known| format!("`{known}`")).collect();
        let way_out = if name == "http" { "; `http` needs `approvals.http.url`" } else { "" };
        let known = known.join(", ");
        Err(RequestError::BadArgs(format!("no analyzer `{name}`; the known analyzers are {known}{way_out}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{SandboxVolume, VolumeAccess};

    #[test]
    fn sessions_that_write_to_the_host_ask() {
        let check = |access: Option<VolumeAccess>, configured, expected| {
            let mut config = Config::with_data_dir("/nonexistent");
            let volume = |access| SandboxVolume { host: "/srv".into(), inside: "/workspace".into(), access };
            config.sandbox.volumes = access.map(volume).into_iter().collect();
            config.approvals.mode = configured;
            assert_eq!(ApprovalDefaults::of(&config).mode, expected);
        };
        check(None, None, ApprovalMode::Auto);
        check(Some(VolumeAccess::ReadOnly), None, ApprovalMode::Auto);
        check(Some(VolumeAccess::ReadWrite), None, ApprovalMode::Ask);
        check(Some(VolumeAccess::ReadWrite), Some(ApprovalMode::Auto), ApprovalMode::Auto);
        check(None, Some(ApprovalMode::Plan), ApprovalMode::Plan);
    }

    #[test]
    fn analyzer_must_be_one_of_this_server() {
        let mut config = Config::with_data_dir("/nonexistent");
        let choose = |config: &Config, name| ApprovalDefaults::of(config).choose_analyzer(name);
        assert_eq!(choose(&config, None).as_deref(), Ok("rules"));
        assert_eq!(choose(&config, Some("none")).as_deref(), Ok("none"));
        let unknown = choose(&config, Some("http")).expect_err("there is no service").to_string();
        assert_eq!(
            unknown,
            "no analyzer `http`; the known analyzers are `none`, `rules`; `http` needs `approvals.http.url`"
        );
        config.approvals.http.url = "http://127.0.0.1:1/analyze".to_owned();
        assert_eq!(choose(&config, Some("http")).as_deref(), Ok("http"));
        assert!(choose(&config, Some("llm")).is_err());
    }
}
