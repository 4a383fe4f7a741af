//! Command line: its commands and options, and the configuration that they give.

use std::{ffi::OsString, path::PathBuf, process::ExitCode};

use clap::{Parser, Subcommand, ValueEnum};

use crate::{
    config::{Config, ConfigError, ConfigSources, DriverChoice},
    store::SessionId,
    terminal::print_note,
};

/// Supervises interactive AI-agent sessions, each in its own sandbox, watched and steered from a
/// browser.
///
/// Of an option that is given twice, the last one applies.
#[derive(Debug, Parser)]
#[command(name = "greenroom", version, after_help = AFTER, args_override_self = true)]
pub struct CliArguments {
    #[command(flatten)]
    pub options: CliOptions,
    #[command(subcommand)]
    pub command: Option<CliCommand>,
}

const AFTER: &str = "\
When the server is ready, it prints one line to stdout: `listening on http://127.0.0.1:3000/?token=…`. Logs go to stderr.
Settings can also be given in a file or as GREENROOM_<SECTION>__<KEY>, such as GREENROOM_SANDBOX__MEMORY=4GiB.

Exit codes:
  0  success: the server ended on request, or `doctor` found all requirements met
  1  failed
  2  wrong usage or configuration";

#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum CliCommand {
    /// Start the server; the same as no command
    Serve,
    /// Report what this machine offers, and what to do about what is missing
    Doctor,
    /// Print the access token
    Token {
        /// Create a new token first; clients with the old one are signed out, also from a running
        /// server
        #[arg(long)]
        renew: bool,
    },
    /// Write sessions as lines of JSON, with a digest; no server may be using the data directory
    Export {
        /// Session to export; all sessions if omitted
        session: Option<SessionId>,
        /// Write to this file, completely or not at all; `-` is stdout, as without this option
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Replace the file if it exists
        #[arg(long)]
        force: bool,
        /// Leave out damaged data and name it on stderr; without this option, the first damage ends
        /// the export
        #[arg(long)]
        skip_damaged: bool,
    },
    /// Import an export file; a file that is damaged, or contradicts the data here, is rejected as
    /// a whole
    Import { file: PathBuf },
}

/// Parses the command line.
///
/// # Errors
/// Help, version or wrong usage, already printed. Returns the exit code.
pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<CliArguments, ExitCode> {
    let error = match CliArguments::try_parse_from(arguments) {
        Ok(parsed) => return Ok(parsed),
        Err(error) => error,
    };
    match error.use_stderr() {
        // The text quotes the arguments, which a script may have from anybody.
        true => error.render().to_string().lines().for_each(print_note),
        // A reader that has gone is no error.
        false => drop(error.print()),
    }
    Err(ExitCode::from(error.exit_code() as u8))
}

/// Options of every command.
#[derive(Debug, Default, clap::Args)]
pub struct CliOptions {
    /// Address and port; port 0 takes a free port
    #[arg(long, global = true, value_name = "ADDRESS")]
    pub bind: Option<String>,
    /// Directory for journal, token and workspaces
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<String>,
    /// Configuration file, instead of the user's and the data directory's
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Sandbox driver
    #[arg(long, global = true, value_enum)]
    pub sandbox: Option<DriverChoice>,
    /// Stop all sandboxes when the server ends
    #[arg(long, global = true)]
    pub stop_sandboxes: bool,
}

impl CliOptions {
    /// Loads the configuration from the defaults, the files, this process's environment and these
    /// flags.
    ///
    /// # Errors
    /// Returns the first invalid setting, with its place.
    pub fn load(self) -> Result<Config, ConfigError> {
        // A variable that is not Unicode is no setting of Greenroom.
        let environment = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Config::load(&self.sources(environment.collect()))
    }

    fn sources(self, environment: std::collections::BTreeMap<String, String>) -> ConfigSources {
        let driver = self.sandbox.and_then(|driver| Some(driver.to_possible_value()?.get_name().to_owned()));
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
    fn flags_apply_before_and_after_the_command() {
        for arguments in [
            &["--bind", "127.0.0.1:0", "--data", "/d", "--sandbox", "process", "--stop-sandboxes"][..],
            &["serve", "--bind", "127.0.0.1:0", "--data", "/d", "--sandbox", "process", "--stop-sandboxes"],
            &["--bind", "127.0.0.1:0", "--data", "/d", "doctor", "--sandbox=process", "--stop-sandboxes"],
        ] {
            let config = load(arguments).expect("the command line is valid");
            assert_eq!(config.server.bind.port(), 0);
            assert_eq!(config.data.dir, PathBuf::from("/d"));
            assert_eq!(config.sandbox.driver, DriverChoice::Process);
            assert!(config.sandbox.stop_with_server);
        }
        assert!(!load(&[]).expect("the command line is valid").sandbox.stop_with_server);
    }

    #[test]
    fn of_repeated_flags_the_last_applies() {
        for arguments in [
            &["--bind", "127.0.0.1:1", "--bind=127.0.0.1:2", "--data", "/a", "--data", "/d"][..],
            &["serve", "--bind", "127.0.0.1:1", "--bind", "127.0.0.1:2", "--data=/a", "--data=/d"],
            &["--bind", "127.0.0.1:1", "--data", "/a", "serve", "--bind", "127.0.0.1:2", "--data", "/d"],
            &["--data", "/a", "--bind", "x", "token", "--data", "/d", "--renew", "--renew", "--bind", "127.0.0.1:2"],
        ] {
            let repeated = [arguments, &["--sandbox", "docker", "--sandbox", "process"]].concat();
            let stop = [&repeated[..], &["--stop-sandboxes", "--stop-sandboxes"]].concat();
            let config = load(&stop).expect("the command line is valid");
            assert_eq!((config.server.bind.port(), config.data.dir), (2, PathBuf::from("/d")), "{arguments:?}");
            assert!(config.sandbox.driver == DriverChoice::Process && config.sandbox.stop_with_server);
        }
        let export =
            ["greenroom", "export", "-o", "a", "--force", "--output=-", "--skip-damaged", "--force", "-o", "b"];
        let command = CliArguments::try_parse_from(export).expect("the command line is valid").command;
        let expected = CliCommand::Export { session: None, output: Some("b".into()), force: true, skip_damaged: true };
        assert_eq!(command, Some(expected));
        // A second name is not a flag.
        let session = SessionId::generate().to_string();
        CliArguments::try_parse_from(["greenroom", "export", &session, &session]).expect_err("one session at most");
    }

    #[test]
    fn wrong_argument_is_named() {
        let check = |arguments: &[&str], part: &str| {
            let error = load(arguments).expect_err("the command line is rejected");
            assert!(error.contains(part), "{error}");
        };
        check(&["--bind", "here"], "flag `--bind`: `server.bind`: \"here\" is invalid");
        check(&["--sandbox", "vm"], "[possible values: auto, docker, process]");
        check(&["dance"], "dance");
        check(&["--config", "/nowhere/g.toml"], "`/nowhere/g.toml`");
    }

    #[test]
    fn invalid_session_id_is_wrong_usage() {
        let export = |session: &str| CliArguments::try_parse_from(["greenroom", "export", session]);
        let error = export("nonsense").expect_err("the command line is rejected");
        assert!(error.exit_code() == 2 && error.to_string().contains("'nonsense'"), "{error}");
        let id = SessionId::generate();
        let command = export(&id.to_string()).expect("the command line is valid").command;
        assert!(matches!(command, Some(CliCommand::Export { session: Some(session), .. }) if session == id));
    }

    #[test]
    fn help_lists_the_exit_codes() {
        let help = CliArguments::try_parse_from(["greenroom", "--help"])
            .expect_err("`--help` is reported as an error")
            .to_string();
        assert!(help.contains("Exit codes:") && help.contains("2  wrong usage or configuration"), "{help}");
    }
}
