//! The command line: what may be typed, and the configuration that comes of it.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::{
    config::{Config, ConfigError, ConfigSources, DriverChoice},
    store::SessionId,
};

/// Supervises interactive AI-agent sessions: each in a sandbox of its own, watched and steered from a browser.
#[derive(Debug, Parser)]
#[command(name = "greenroom", version, after_help = AFTER)]
pub struct CliArguments {
    #[command(flatten)]
    pub options: CliOptions,
    #[command(subcommand)]
    pub command: Option<CliCommand>,
}

const AFTER: &str = "\
When it is ready, one line on stdout says where: `listening on http://127.0.0.1:3000/?token=…`. Logs go to stderr.
Every setting can also be given in a file or as GREENROOM_<SECTION>__<KEY>, such as GREENROOM_SANDBOX__MEMORY=4GiB.

Exit codes:
  0  done: it was asked to end, or `doctor` found everything that is needed
  1  failed
  2  wrong usage or configuration";

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum CliCommand {
    /// Serve; the same as no command at all
    Serve,
    /// Say what this machine offers, and what to do about what is missing
    Doctor,
    /// Print the token that lets clients in
    Token {
        /// Make a new one first: whoever has the old one is signed out, also from a server that runs
        #[arg(long)]
        renew: bool,
    },
    /// Write sessions as lines of JSON, with a digest; no server may be using the data directory
    Export {
        /// This session alone; all of them where none is named
        session: Option<SessionId>,
        /// Write to this file, whole or not at all, in place of stdout
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Leave out what the disk has damaged, and name it on stderr; without this the first damage ends the export
        #[arg(long)]
        skip_damaged: bool,
    },
    /// Take in what `export` wrote; nothing of a file that is damaged or tells another story than what is here
    Import { file: PathBuf },
}

/// What every command takes.
#[derive(Debug, Default, clap::Args)]
pub struct CliOptions {
    /// Address and port; port 0 takes one that is free
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub bind: Option<String>,
    /// Where journal, token and workspaces are kept
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<String>,
    /// Read this file, in place of the user's and the data directory's
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What agents are kept in
    #[arg(long, global = true, value_enum)]
    pub sandbox: Option<DriverChoice>,
    /// Take the sandboxes along when the server ends
    #[arg(long, global = true)]
    pub stop_sandboxes: bool,
}

impl CliOptions {
    /// The configuration: the defaults, the files, this process's environment, and these flags.
    pub fn load(self) -> Result<Config, ConfigError> {
        // What is no Unicode is no setting of ours.
        let environment = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Config::load(&self.sources(environment.collect()))
    }

    fn sources(self, environment: std::collections::BTreeMap<String, String>) -> ConfigSources {
        let driver = self.sandbox.map(|driver| match driver {
            DriverChoice::Auto => "auto".to_owned(),
            DriverChoice::Docker => "docker".to_owned(),
            DriverChoice::Process => "process".to_owned(),
        });
        let flags = [
            ("server.bind", "--bind", self.bind),
            ("data.dir", "--data", self.data),
            ("sandbox.driver", "--sandbox", driver),
            ("sandbox.stop_with_server", "--stop-sandboxes", self.stop_sandboxes.then(|| "true".to_owned())),
        ];
        let flags = flags.into_iter().filter_map(|(key, flag, text)| Some((key, flag, text?))).collect();
        ConfigSources { file: self.config, environment, flags }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(arguments: &[&str]) -> Result<Config, String> {
        let cli = CliArguments::try_parse_from([&["greenroom"], arguments].concat()).map_err(|e| e.to_string())?;
        Config::load(&cli.options.sources([("HOME".to_owned(), "/nowhere".to_owned())].into()))
            .map_err(|e| e.to_string())
    }

    #[test]
    fn flags_are_heard_before_and_after_the_command() {
        for arguments in [
            &["--bind", "127.0.0.1:0", "--data", "/d", "--sandbox", "process", "--stop-sandboxes"][..],
            &["serve", "--bind", "127.0.0.1:0", "--data", "/d", "--sandbox", "process", "--stop-sandboxes"],
            &["--bind", "127.0.0.1:0", "--data", "/d", "doctor", "--sandbox=process", "--stop-sandboxes"],
        ] {
            let config = load(arguments).expect("it is understood");
            assert_eq!(config.server.bind.port(), 0);
            assert_eq!(config.data.dir, PathBuf::from("/d"));
            assert_eq!(config.sandbox.driver, DriverChoice::Process);
            assert!(config.sandbox.stop_with_server);
        }
        assert!(!load(&[]).expect("it is understood").sandbox.stop_with_server);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let check = |arguments: &[&str], part: &str| {
            let why = load(arguments).expect_err("it is refused");
            assert!(why.contains(part), "{why}");
        };
        check(&["--bind", "here"], "flag `--bind`: `server.bind`: \"here\" does not fit");
        check(&["--sandbox", "vm"], "[possible values: auto, docker, process]");
        check(&["dance"], "dance");
        check(&["--config", "/nowhere/g.toml"], "`/nowhere/g.toml`");
    }

    #[test]
    fn what_is_no_session_is_wrong_usage() {
        let export = |session: &str| CliArguments::try_parse_from(["greenroom", "export", session]);
        let why = export("nonsense").expect_err("it is refused");
        assert!(why.exit_code() == 2 && why.to_string().contains("'nonsense'"), "{why}");
        let id = SessionId::generate();
        let command = export(&id.to_string()).expect("it is understood").command;
        assert!(matches!(command, Some(CliCommand::Export { session: Some(session), .. }) if session == id));
    }

    #[test]
    fn the_help_names_the_exit_codes() {
        let help = CliArguments::try_parse_from(["greenroom", "--help"]).expect_err("help is no command").to_string();
        assert!(help.contains("Exit codes:") && help.contains("2  wrong usage or configuration"), "{help}");
    }
}
