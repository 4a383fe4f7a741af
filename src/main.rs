use std::process::ExitCode;

use clap::Parser;
use greenroom::{
    cli::{Cli, Command},
    doctor,
    sandbox::process::{KEEPER_COMMAND, keeper_main},
    server, telemetry,
};

fn main() -> ExitCode {
    // Asked before anything else is set up: the keeper of a sandbox stays small.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == KEEPER_COMMAND) {
        return keeper_main();
    }
    let Cli { options, command } = Cli::parse();
    let config = match options.load() {
        Ok(config) => config,
        Err(e) => {
            eprintln!("greenroom: {e}");
            return ExitCode::from(2);
        }
    };
    telemetry::init(&config.log);
    let system = actix::System::new();
    let done = match command {
        Some(Command::Doctor) => system.block_on(doctor::examine(config)),
        None | Some(Command::Serve) => system.block_on(async {
            let running = server::start(config).await.map_err(|e| e.to_string())?;
            println!("listening on {}", running.link);
            running.until_asked().await.map_err(|e| e.to_string())
        }),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("greenroom: {why}");
            ExitCode::FAILURE
        }
    }
}
