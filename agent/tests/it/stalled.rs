//! A file system that does not answer blocks only the call that uses it.

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

/// Perl script that blocks everyone who opens the file, for 45 s or until the script ends. It holds
/// a lease on the file and does not release it.
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
            .expect("perl is installed");
        let output = BufReader::new(holder.stdout.take().expect("stdout is piped"));
        let mut leased = LeasedFile { holder, output };
        leased.expect_line("held");
        leased
    }

    /// Reads the next line of the script and compares it.
    fn expect_line(&mut self, expected: &str) {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("the script writes a line");
        assert_eq!(line.trim_end(), expected);
    }
}

impl Drop for LeasedFile {
    fn drop(&mut self) {
        // The script may have ended by itself.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[tokio::test]
async fn blocked_file_delays_neither_link_nor_interrupt_nor_exit() {
    let edit = json!({ "path": "f", "change": "REPLACE", "old": "some", "lines": ["no"] });
    for (tool, arguments) in [("read", json!({ "path": "f" })), ("edit", edit)] {
        let mut session =
            AgentTestSession::open(vec![Complete(vec![call("c1", tool, arguments)]), Complete(vec![text("Well.")])])
                .await;
        let mut leased = LeasedFile::new(&session.agent.file("f"));
        session.prompt("t1", "go").await;
        let started = [format!("{tool}! c1")];
        session.until(|session| session.events() == started).await;
        leased.expect_line("asked for");
        session.link.ping().await;
        session.send_command(link::AgentCommand::Cancel {}).await;
        let stopped = WorkOutcome::Cancelled { what: format!("`{tool}`"), partial: false };
        assert_eq!(session.outcome("t1").await, stopped);
        session.prompt("t2", "and?").await;
        assert_eq!(session.outcome("t2").await, WorkOutcome::Done);
        let sent = session.agent.gateway.requests()[1]["messages"].to_string();
        assert!(sent.contains("Interrupted before it had a result"), "{sent}");
        let agent_pid = Pid::from_raw(session.agent.process.id() as i32).expect("not zero");
        kill_process(agent_pid, Signal::TERM).expect("the agent is a child");
        assert_eq!(session.agent.process.wait().expect("the agent ends").code(), Some(0));
        // The lease was held all the time, and the stopped change is not made.
        assert!(leased.holder.try_wait().expect("the script is a child").is_none());
        drop(leased);
        assert_eq!(std::fs::read_to_string(session.agent.file("f")).expect("the file exists"), "some text\n");
    }
}
