//! End of a command, with the signal that ended it.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

/// Names of the signals from 1 on, without `SIG`. The numbers are those of Linux on x86-64 and ARM.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM", "TERM",
    "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO",
    "PWR", "SYS",
];

/// First of the realtime signals that programs use. The C library keeps the two before it.
const FIRST_REALTIME_SIGNAL: i32 = 34;

/// Signals by which a program ends, and which a shell reports in its own exit code. Programs use
/// the codes of other signals for errors: `git` exits with 129 after a wrong option.
const REPORTED_BY_SHELLS: [&str; 13] =
    ["INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "SEGV", "PIPE", "TERM", "XCPU", "SYS"];

/// Exit code of a shell after signal 0, which does not exist. Later signals follow.
const SIGNAL_CODE_BASE: i32 = 128;

/// End of a command that was not stopped from outside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandExit {
    /// Exit code. After a signal: 128 and the signal's number, as shells report it.
    pub code: i32,
    /// Name of the signal that ended the command, for example `SIGSEGV`. Also set if it ended the
    /// last program of the command, and the shell reports that by its exit code.
    pub signal: Option<String>,
}

impl From<ExitStatus> for CommandExit {
    fn from(status: ExitStatus) -> CommandExit {
        match (status.signal(), status.code()) {
            (Some(signal), _) => CommandExit { code: SIGNAL_CODE_BASE + signal, signal: Some(signal_name(signal)) },
            (None, Some(code)) => {
                let reported = code.checked_sub(SIGNAL_CODE_BASE).and_then(known_signal);
                let signal = reported.filter(|name| REPORTED_BY_SHELLS.contains(name)).map(|name| format!("SIG{name}"));
                CommandExit { code, signal }
            }
            // A child that was waited for has exited or was ended by a signal.
            (None, None) => CommandExit { code: status.into_raw(), signal: None },
        }
    }
}

fn signal_name(signal: i32) -> String {
    match known_signal(signal) {
        Some(name) => format!("SIG{name}"),
        None if signal >= FIRST_REALTIME_SIGNAL => format!("SIGRTMIN+{}", signal - FIRST_REALTIME_SIGNAL),
        None => format!("SIG{signal}"),
    }
}

fn known_signal(signal: i32) -> Option<&'static str> {
    SIGNALS.get(usize::try_from(signal.checked_sub(1)?).ok()?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_and_their_exit_codes_are_named() {
        let check = |raw: i32, code: i32, signal: Option<&str>| {
            let exit = CommandExit::from(ExitStatus::from_raw(raw));
            assert_eq!(exit, CommandExit { code, signal: signal.map(str::to_owned) }, "status {raw}");
        };
        let exited = |code: i32| code << 8;
        const CORE_DUMPED: i32 = 0x80;
        check(exited(0), 0, None);
        check(exited(7), 7, None);
        check(11, 139, Some("SIGSEGV"));
        check(6 | CORE_DUMPED, 134, Some("SIGABRT"));
        check(1, 129, Some("SIGHUP"));
        check(31, 159, Some("SIGSYS"));
        check(34, 162, Some("SIGRTMIN+0"));
        check(exited(139), 139, Some("SIGSEGV"));
        check(exited(137), 137, Some("SIGKILL"));
        // Error codes of programs, which no signal caused.
        check(exited(128), 128, None);
        check(exited(129), 129, None);
        check(exited(255), 255, None);
    }
}
