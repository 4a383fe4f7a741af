use std::{
    fmt::Display,
    io::{self, IsTerminal},
    process::ExitCode,
};

use greenroom::{
    allocator::{self, SplitAllocator},
    cli::{self, CliArguments, CliCommand},
    config::Config,
    data::DataDir,
    doctor, server, telemetry,
    terminal::{print_line, print_note},
    transfer::{self, command::ExportRequest},
};

#[global_allocator]
static ALLOCATOR: SplitAllocator = SplitAllocator;

fn main() -> ExitCode {
    allocator::configure_purge();
    raise_descriptor_limit();
    let CliArguments { options, command } = match cli::parse(std::env::args_os()) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let config = match options.load() {
        Ok(config) => config,
        Err(e) => {
            print_error(e);
            return ExitCode::from(2);
        }
    };
    telemetry::init(&config.log);
    let system = actix::System::new();
    let result = match command {
        Some(CliCommand::Export { session, output, force, skip_damaged }) => {
            let request = ExportRequest { session, output, force, skip_damaged };
            system.block_on(transfer::command::export_to(&config, request))
        }
        Some(CliCommand::Import { file }) => system.block_on(transfer::command::import_from(&config, &file)),
        Some(CliCommand::Token { renew }) => {
            token(&config, renew).and_then(print_line).inspect(|()| print_sign_in_hint(&config))
        }
        Some(CliCommand::Doctor) => system.block_on(doctor::examine(config)),
        None | Some(CliCommand::Serve) => system.block_on(async {
            let running = server::start(config).await.map_err(|e| e.to_string())?;
            print_ready(&running.sign_in_url)?;
            running.run_until_signal().await.map_err(|e| e.to_string())
        }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            print_error(reason);
            ExitCode::FAILURE
        }
    }
}

/// Prints the address with the token: in a frame for a person, as one documented line for a script.
///
/// # Errors
/// Returns the reason if stdout accepts no data.
fn print_ready(url: &str) -> Result<(), String> {
    if !io::stdout().is_terminal() {
        return print_line(format_args!("listening on {url}"));
    }
    let line = format!("Greenroom is ready: {url}");
    // Rules only above and below: a character behind the link would be copied with it.
    let rule = "─".repeat(line.chars().count());
    [rule.as_str(), &line, &rule].into_iter().try_for_each(print_line)
}

/// Prints an error to stderr. If stderr is closed, only the exit code reports the error.
fn print_error(reason: impl Display) {
    print_note(format_args!("greenroom: {reason}"));
}

/// Prints how to sign in with the token. Only on a terminal, and only if the configuration sets the
/// port.
fn print_sign_in_hint(config: &Config) {
    let address = config.server.bind;
    if io::stderr().is_terminal() && address.port() != 0 {
        print_error(format_args!(
            "to sign in, open {}/?token=… with this token in place of the dots",
            config.server.address(address)
        ));
    }
}

/// Raises the limit of open file descriptors to the maximum. Each client, agent and gateway takes a
/// descriptor, and many systems allow 1000 by default.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    // On failure, the limit stays as it was.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

/// Returns the token of the configured data directory, a new one if `renew` is true.
///
/// # Errors
/// Fails if `renew` is true and the configuration sets the token, or if the data directory is
/// unusable.
fn token(config: &Config, renew: bool) -> Result<String, String> {
    let given = &config.server.token;
    if renew && given.expose().is_some() {
        return Err(
            "the token is set in the configuration (`server.token`); change it there and restart the server".to_owned()
        );
    }
    let data = DataDir::open_unlocked(&config.data.dir).map_err(|e| e.to_string())?;
    let token = if renew { data.renew_token() } else { data.token(given) };
    Ok(token.map_err(|e| e.to_string())?.expose().to_owned())
}
