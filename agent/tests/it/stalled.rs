//! A file system that does not answer holds up the call that asked it, and nothing else.

use std::{
    io::{BufRead, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use greenroom_protocol::link::{self, WorkOutcome};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::{
    gateway::{ScriptedAnswer::Complete, call, text},
    session::AgentTestSession,
};

/// Keeps everybody who opens the file waiting, for 45 s or until it ends: it has a lease on it and does not give that back.
const LEASE_HOLDER: &str = r#"
    use constant { F_SETLEASE => 1024, F_WRLCK => 1 };
    $| = 1;
    $SIG{IO} = sub { print "asked for\n" };
    open(my $file, "+<", $ARGV[0]) or die "no file: $!";
    fcntl($file, F_SETLEASE, F_WRLCK) or die "no lease: $!";
    print "held\n";
    sleep 1000 while 1;
"#;

struct LeasedFile {
    holder: Child,
    output: BufReader<ChildStdout>,
}

impl LeasedFile {
    fn new(file: &Path) -> LeasedFile {
        std::fs::write(file, "some text\n").expect("a file");
        let mut holder = Command::new("perl")
            .args(["-e", LEASE_HOLDER])
            .arg(file)
            .stdout(Stdio::piped())
            .spawn()
            .expect("perl is there");
        let said = BufReader::new(holder.stdout.take().expect("it is piped"));
        let mut held = LeasedFile { holder, output: said };
        held.expect_line("held");
        held
    }

    /// Waits until it says so.
    fn expect_line(&mut self, expected: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it is read");
        assert_eq!(line.trim_end(), expected);
    }
}

impl Drop for LeasedFile {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[tokio::test]
async fn a_file_that_does_not_answer_holds_up_neither_link_nor_interrupt_nor_end() {
    let edit = json!({ "path": "f", "change": "REPLACE", "old": "some", "lines": ["no"] });
    for (tool, arguments) in [("read", json!({ "path": "f" })), ("edit", edit)] {
        let mut session =
            AgentTestSession::open(vec![Complete(vec![call("c1", tool, arguments)]), Complete(vec![text("Well.")])])
                .await;
        let mut held = LeasedFile::new(&session.agent.file("f"));
        session.prompt("t1", "go").await;
        let begun = [format!("{tool}! c1")];
        session.until(|session| session.events() == begun).await;
        held.expect_line("asked for");
        session.link.ping().await;
        session.send_command(link::AgentCommand::Cancel {}).await;
        let stopped = WorkOutcome::Cancelled { what: format!("`{tool}`"), partial: false };
        assert_eq!(session.outcome("t1").await, stopped);
        session.prompt("t2", "and?").await;
        assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
        let told = session.agent.gateway.requests()[1]["messages"].to_string();
        assert!(told.contains("Interrupted before it had a result"), "{told}");
        let us = Pid::from_raw(session.agent.process.id() as i32).expect("not zero");
        kill_process(us, Signal::TERM).expect("it is ours");
        assert_eq!(session.agent.process.wait().expect("it ends").code(), Some(0));
        // All this time it was held, and a change that was stopped is not made.
        assert!(held.holder.try_wait().expect("it is our child").is_none());
        drop(held);
        assert_eq!(std::fs::read_to_string(session.agent.file("f")).expect("it is there"), "some text\n");
    }
}
