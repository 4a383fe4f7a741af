use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if std::env::args().nth(1).as_deref() == Some(greenroom::sandbox::process::KEEPER_COMMAND) {
        return greenroom::sandbox::process::keeper_main();
    }
    ExitCode::SUCCESS
}
