//! What a hostile agent finds when it tries the walls from inside.

use std::{net::IpAddr, process::Command};

use tokio::net::{TcpListener, TcpStream};

use super::{super::sandbox_paths, DriverFixture, SandboxFixture, eventually};

/// Runs the commands and returns what they wrote to stdout and stderr.
async fn probe(bench: &DriverFixture, commands: &str, check: impl AsyncFnOnce(&SandboxFixture<'_>, String)) {
    let script =
        format!("{{\n{commands}\n}} >/workspace/.seen 2>&1\nmv /workspace/.seen /workspace/seen; exec sleep 1000");
    bench
        .with_sandbox(&script, async |room| {
            room.start().await;
            let seen = room.wait_for_file("seen").await;
            check(room, seen).await;
        })
        .await;
}

fn line<'a>(seen: &'a str, name: &str) -> &'a str {
    let found = seen.lines().find_map(|line| line.strip_prefix(name));
    found.unwrap_or_else(|| panic!("no `{name}` in:\n{seen}")).trim()
}

pub(crate) async fn it_holds_no_privileges(bench: &DriverFixture) {
    let commands =
        "cat /proc/self/status; mount -t tmpfs none /workspace && echo mounted; chroot / true && echo rooted";
    probe(bench, commands, async |room, seen| {
        for capabilities in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(line(&seen, capabilities), "0000000000000000", "{capabilities}");
        }
        assert_eq!(line(&seen, "NoNewPrivs:"), "1");
        assert_eq!(line(&seen, "Seccomp:"), "2");
        let uid = room.spec.uid.to_string();
        assert!(line(&seen, "Uid:").split_whitespace().all(|seen| seen == uid), "{seen}");
        assert_ne!(line(&seen, "Uid:"), "0");
        assert!(!seen.contains("mounted") && !seen.contains("rooted"), "{seen}");
    })
    .await;
}

/// Says `reached`, `refused`, or that it had nothing to try with.
const TRY: &str = r#"try() {
  if command -v bash >/dev/null; then timeout 3 bash -c "exec 3<>/dev/tcp/$1/$2" 2>/dev/null
  elif command -v nc >/dev/null; then timeout 3 nc "$1" "$2" </dev/null 2>/dev/null
  else echo "untried $1"; return; fi && echo "reached $1" || echo "refused $1"
}"#;

pub(crate) async fn it_reaches_no_network(bench: &DriverFixture) {
    let service = TcpListener::bind("[::]:0").await.expect("a service of the host");
    let port = service.local_addr().expect("it has a port").port();
    let hosts = addresses_of_this_host();
    assert!(hosts.iter().any(|host| host.is_loopback()));
    let mut commands = format!("{TRY}\n");
    for host in &hosts {
        TcpStream::connect((*host, port)).await.expect("the host itself reaches it");
        commands.push_str(&format!("try {host} {port}\n"));
    }
    commands.push_str("try 169.254.169.254 80\ntry 1.1.1.1 443\nsed 's/^/net /' /proc/net/dev\n");
    // Where it can be told, that the probe itself works: it reaches what listens inside.
    commands.push_str("if command -v nc >/dev/null; then nc -l -p 7777 >/dev/null & sleep 0.3; try 127.0.0.1 7777; fi");
    probe(bench, &commands, async |_, seen| {
        for host in hosts.iter().map(IpAddr::to_string).chain(["169.254.169.254".into(), "1.1.1.1".into()]) {
            assert!(seen.contains(&format!("refused {host}\n")), "{host}:\n{seen}");
        }
        let own = seen.lines().filter(|line| line.starts_with("reached ")).collect::<Vec<_>>();
        assert!(own.is_empty() || own == ["reached 127.0.0.1"], "{seen}");
        let interfaces = seen.lines().filter_map(|line| line.strip_prefix("net ")?.split_once(':'));
        assert_eq!(interfaces.map(|(name, _)| name.trim()).collect::<Vec<_>>(), ["lo"], "{seen}");
    })
    .await;
}

fn addresses_of_this_host() -> Vec<IpAddr> {
    let output = Command::new("hostname").arg("-I").output().expect("`hostname -I` runs");
    let listed = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut hosts = vec![IpAddr::from([127, 0, 0, 1])];
    hosts.extend(listed.split_whitespace().filter_map(|address| address.parse::<IpAddr>().ok()));
    hosts
}

/// The test's own environment is the canary: cargo has put more than a dozen names into it.
pub(crate) async fn its_environment_is_clean(bench: &DriverFixture) {
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let commands = "for each in /proc/[0-9]*/environ; do tr '\\0' '\\n' <$each; done";
    probe(bench, commands, async |room, seen| {
        let harmless = ["PATH", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME", "TERM", "LANG", "USER", "LOGNAME", "SHELL"];
        for variable in seen.lines().filter(|line| line.contains('=')) {
            let (name, value) = variable.split_once('=').expect("it has a `=`");
            match name {
                "HOME" => assert_eq!(value, sandbox_paths::HOME),
                "GREENROOM_SESSION" => assert_eq!(value, room.spec.session.to_string()),
                _ => assert!(harmless.contains(&name), "`{variable}` has no business inside"),
            }
        }
        for wanted in ["HOME=", "PATH=", "GREENROOM_SESSION="] {
            assert!(seen.lines().any(|line| line.starts_with(wanted)), "no `{wanted}` in:\n{seen}");
        }
    })
    .await;
}

pub(crate) async fn it_sees_nothing_of_the_host(bench: &DriverFixture) {
    let host = tempfile::tempdir().expect("a directory of the host");
    std::fs::write(host.path().join("secret"), "canary").expect("a secret of the host");
    let path = host.path().display();
    let commands = format!(
        "cat {path}/secret; cat /proc/1/root{path}/secret; cat /etc/shadow; \
         for each in /run/docker.sock /var/run/docker.sock /run/containerd /run/dbus /dev/sda /dev/vda /dev/kmsg /dev/mem; do \
         [ -e $each ] && echo \"there is $each\"; done; \
         ls /proc | grep -c '^[0-9]' | sed 's/^/processes /'; pwd | sed 's/^/in /'"
    );
    probe(bench, &commands, async |room, seen| {
        assert!(!seen.contains("canary") && !seen.contains("there is") && !seen.contains("root:"), "{seen}");
        let processes: usize = line(&seen, "processes").parse().expect("a number");
        assert!(processes < 10, "it sees processes of others: {seen}");
        assert_eq!(line(&seen, "in"), sandbox_paths::WORKSPACE);
        assert!(room.data().join("agent.sh").exists());
    })
    .await;
}

pub(crate) async fn it_writes_only_where_it_may(bench: &DriverFixture) {
    let commands = format!(
        "may() {{ (: >\"$1\") 2>/dev/null && echo \"wrote $1\" || echo \"kept $1\"; }}\n\
         may /workspace/x; may $HOME/x; may /tmp/x; may /greenroom/run/agent/x\n\
         may /greenroom/x; may /greenroom/run/x; may /greenroom/run/gateway/x; may /usr/x; may /etc/x; may {agent}\n\
         rm -f {agent}; mv /greenroom/run/agent /greenroom/run/away; [ -x {agent} ] && echo 'it is there still'",
        agent = sandbox_paths::AGENT_BINARY,
    );
    probe(bench, &commands, async |room, seen| {
        for path in ["/workspace/x", "/tmp/x", "/greenroom/run/agent/x", &format!("{}/x", sandbox_paths::HOME)] {
            assert!(seen.contains(&format!("wrote {path}\n")), "{path}:\n{seen}");
        }
        let kept = [
            "/greenroom/x",
            "/greenroom/run/x",
            "/greenroom/run/gateway/x",
            "/usr/x",
            "/etc/x",
            sandbox_paths::AGENT_BINARY,
        ];
        for path in kept {
            assert!(seen.contains(&format!("kept {path}\n")), "{path}:\n{seen}");
        }
        assert!(seen.contains("it is there still"), "{seen}");
        assert!(room.spec.workspace.join("x").exists() && room.spec.run.agent().join("x").exists());
        let owner =
            std::os::unix::fs::MetadataExt::uid(&room.spec.workspace.join("x").metadata().expect("it is there"));
        assert_eq!(owner, room.spec.uid, "what it makes belongs to whom the server expects");
    })
    .await;
}

/// Also after the server has bound the socket anew, as it does when it starts again.
pub(crate) async fn it_hears_the_gateway(bench: &DriverFixture) {
    let socket = sandbox_paths::GATEWAY_SOCKET;
    let script = format!("while :; do if [ -S {socket} ]; then : >/workspace/heard; fi; sleep 0.05; done");
    bench
        .with_sandbox(&script, async |room| {
            room.start().await;
            for _ in 0..2 {
                let listener = room.spec.run.bind_gateway().expect("it binds");
                room.wait_for_file("heard").await;
                drop(listener);
                std::fs::remove_file(room.spec.run.gateway().join("gateway.sock")).expect("it was there");
                // The loop may be past its look at the old socket, so the trace of it may come once more.
                eventually("the old one is out of sight", async || {
                    let _ = std::fs::remove_file(room.spec.workspace.join("heard"));
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                    !room.spec.workspace.join("heard").exists()
                })
                .await;
            }
        })
        .await;
}

pub(crate) async fn a_fork_bomb_is_held(bench: &DriverFixture) {
    // Only what the shell does without a new process comes after the bomb.
    let script = "( n=0; while [ $n -lt 400 ]; do sleep 1000 & n=$((n+1)); echo $n >/workspace/forks; done )\n\
                  : >/workspace/over; read forever </workspace/none; while :; do :; done";
    bench
        .with_sandbox(script, async |room| {
            room.start().await;
            room.wait_for_file("over").await;
            let forks: u64 = room.read("forks").trim().parse().expect("a number");
            assert!((8..room.spec.limits.pids).contains(&forks), "{forks} processes");
        })
        .await;
}

pub(crate) async fn a_memory_hog_is_ended(bench: &DriverFixture) {
    // `tail` keeps the last lines, and there is no end of the first.
    probe(bench, "tail /dev/zero >/dev/null; echo \"ended with $?\"", async |_, seen| {
        assert_ne!(line(&seen, "ended with"), "0");
    })
    .await;
}
