use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use clap::Parser;
use greenroom::{
    allocator::{self, SplitAllocator},
    cli::{CliArguments, CliCommand},
    config::Config,
    data::DataDir,
    doctor, server, telemetry, transfer,
};

#[global_allocator]
static ALLOCATOR: SplitAllocator = SplitAllocator;

fn main() -> ExitCode {
    allocator::configure_purge();
    raise_descriptor_limit();
    let CliArguments { options, command } = CliArguments::parse();
    let config = match options.load() {
        Ok(config) => config,
        Err(e) => {
            print_error(e);
            return ExitCode::from(2);
        }
    };
    telemetry::init(&config.log);
    let system = actix::System::new();
    let done = match command {
        Some(CliCommand::Export { session, output, skip_damaged }) => {
            system.block_on(transfer::command::export_to(&config, session, output, skip_damaged))
        }
        Some(CliCommand::Import { file }) => system.block_on(transfer::command::import_from(&config, &file)),
        Some(CliCommand::Token { renew }) => {
            token(&config, renew).and_then(|token| print_line(&token)).inspect(|()| print_sign_in_hint(&config))
        }
        Some(CliCommand::Doctor) => system.block_on(doctor::examine(config)),
        None | Some(CliCommand::Serve) => system.block_on(async {
            let running = server::start(config).await.map_err(|e| e.to_string())?;
            print_line(&format!("listening on {}", running.sign_in_url))?;
            running.run_until_signal().await.map_err(|e| e.to_string())
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            print_error(why);
            ExitCode::FAILURE
        }
    }
}

/// One line on stdout. Where whoever reads it has gone, nobody misses it.
fn print_line(line: &str) -> Result<(), String> {
    match writeln!(io::stdout(), "{line}") {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("stdout cannot be written: {e}")),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// On stderr, where somebody reads it: where nobody does, the exit code is all that there is to say.
fn print_error(why: impl Display) {
    let _ = writeln!(io::stderr(), "greenroom: {why}");
}

/// Where the token goes, for a person: not for a script, and not for a port that only the server knows.
fn print_sign_in_hint(config: &Config) {
    let address = config.server.bind;
    if io::stderr().is_terminal() && address.port() != 0 {
        print_error(format_args!("to sign in, open http://{address}/?token=… with this token in place of the dots"));
    }
}

/// Each client, agent and gateway takes a descriptor, and many systems give a program a thousand unless it asks for more.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let most = getrlimit(Resource::Nofile).maximum;
    // Where it is refused, there are as many as there were.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: most, maximum: most });
}

/// The token of the configured data directory, a new one if asked for.
fn token(config: &Config, renew: bool) -> Result<String, String> {
    let given = &config.server.token;
    if renew && given.expose().is_some() {
        return Err(
            "the token is set in the configuration (`server.token`): change it there, and start again".to_owned()
        );
    }
    let data = DataDir::open_unlocked(&config.data.dir).map_err(|e| e.to_string())?;
    let token = if renew { data.renew_token() } else { data.token(given) };
    Ok(token.map_err(|e| e.to_string())?.expose().to_owned())
}
