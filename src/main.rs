use std::{
    fmt::Display,
    io::{self, IsTerminal, Write},
    process::ExitCode,
};

use clap::Parser;
use greenroom::{
    allocator::{self, Allocator},
    cli::{Cli, Command},
    config::Config,
    data::DataDir,
    doctor, server, telemetry, transfer,
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    allocator::give_back();
    take_all_descriptors();
    let Cli { options, command } = Cli::parse();
    let config = match options.load() {
        Ok(config) => config,
        Err(e) => {
            complain(e);
            return ExitCode::from(2);
        }
    };
    telemetry::init(&config.log);
    let system = actix::System::new();
    let done = match command {
        Some(Command::Export { session, output, skip_damaged }) => {
            system.block_on(transfer::command::export_to(&config, session, output, skip_damaged))
        }
        Some(Command::Import { file }) => system.block_on(transfer::command::import_from(&config, &file)),
        Some(Command::Token { renew }) => {
            token(&config, renew).and_then(|token| say(&token)).inspect(|()| say_where(&config))
        }
        Some(Command::Doctor) => system.block_on(doctor::examine(config)),
        None | Some(Command::Serve) => system.block_on(async {
            let running = server::start(config).await.map_err(|e| e.to_string())?;
            say(&format!("listening on {}", running.link))?;
            running.until_asked().await.map_err(|e| e.to_string())
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            complain(why);
            ExitCode::FAILURE
        }
    }
}

/// One line on stdout. Where whoever reads it has gone, nobody misses it.
fn say(line: &str) -> Result<(), String> {
    match writeln!(io::stdout(), "{line}") {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("stdout cannot be written: {e}")),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// On stderr, where somebody reads it: where nobody does, the exit code is all that there is to say.
fn complain(why: impl Display) {
    let _ = writeln!(io::stderr(), "greenroom: {why}");
}

/// Where the token goes, for a person: not for a script, and not for a port that only the server knows.
fn say_where(config: &Config) {
    let address = config.server.bind;
    if io::stderr().is_terminal() && address.port() != 0 {
        complain(format_args!("to sign in, open http://{address}/?token=… with this token in place of the dots"));
    }
}

/// Each client, agent and gateway takes a descriptor, and many systems give a program a thousand unless it asks for more.
fn take_all_descriptors() {
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
    let data = DataDir::visit(&config.data.dir).map_err(|e| e.to_string())?;
    let token = if renew { data.renew_token() } else { data.token(given) };
    Ok(token.map_err(|e| e.to_string())?.expose().to_owned())
}
