//! Isolation part of the contract: what a hostile agent can reach from inside.

use std::{net::IpAddr, process::Command};

use tokio::net::{TcpListener, TcpStream};

use super::{super::sandbox_paths, DriverFixture, SandboxFixture, eventually};

/// Runs the commands inside and passes their stdout and stderr to `check`.
async fn run_inside(fixture: &DriverFixture, commands: &str, check: impl AsyncFnOnce(&SandboxFixture<'_>, String)) {
    let script =
        format!("{{\n{commands}\n}} >/workspace/.seen 2>&1\nmv /workspace/.seen /workspace/seen; exec sleep 1000");
    fixture
        .with_sandbox(&script, async |sandbox| {
            sandbox.start().await;
            let seen = sandbox.wait_for_file("seen").await;
            check(sandbox, seen).await;
        })
        .await;
}

fn line<'a>(seen: &'a str, name: &str) -> &'a str {
    let found = seen.lines().find_map(|line| line.strip_prefix(name));
    found.unwrap_or_else(|| panic!("no `{name}` in:\n{seen}")).trim()
}

pub(crate) async fn agent_has_no_privileges(fixture: &DriverFixture) {
    let commands =
        "cat /proc/self/status; mount -t tmpfs none /workspace && echo mounted; chroot / true && echo rooted";
    run_inside(fixture, commands, async |sandbox, seen| {
        for capabilities in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
            assert_eq!(line(&seen, capabilities), "0000000000000000", "{capabilities}");
        }
        assert_eq!(line(&seen, "NoNewPrivs:"), "1");
        assert_eq!(line(&seen, "Seccomp:"), "2");
        let uid = sandbox.spec.uid.to_string();
        assert!(line(&seen, "Uid:").split_whitespace().all(|seen| seen == uid), "{seen}");
        assert_ne!(line(&seen, "Uid:"), "0");
        assert!(!seen.contains("mounted") && !seen.contains("rooted"), "{seen}");
    })
    .await;
}

/// Shell function that prints `reached`, `refused`, or `untried` if the image has no tool for it.
const TRY: &str = r#"try() {
  if command -v bash >/dev/null; then timeout 3 bash -c "exec 3<>/dev/tcp/$1/$2" 2>/dev/null
  elif command -v nc >/dev/null; then timeout 3 nc "$1" "$2" </dev/null 2>/dev/null
  else echo "untried $1"; return; fi && echo "reached $1" || echo "refused $1"
}"#;

pub(crate) async fn agent_reaches_no_network(fixture: &DriverFixture) {
    let service = TcpListener::bind("[::]:0").await.expect("listener binds");
    let port = service.local_addr().expect("listener has a port").port();
    let hosts = addresses_of_this_host();
    assert!(hosts.iter().any(|host| host.is_loopback()));
    let mut commands = format!("{TRY}\n");
    for host in &hosts {
        TcpStream::connect((*host, port)).await.expect("the host reaches the service");
        commands.push_str(&format!("try {host} {port}\n"));
    }
    commands.push_str("try 169.254.169.254 80\ntry 1.1.1.1 443\nsed 's/^/net /' /proc/net/dev\n");
    // Shows that the check works, if the image has `nc`: a listener inside is reached.
    commands.push_str("if command -v nc >/dev/null; then nc -l -p 7777 >/dev/null & sleep 0.3; try 127.0.0.1 7777; fi");
    run_inside(fixture, &commands, async |_, seen| {
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

/// The test's own environment is the canary: cargo sets more than a dozen variables.
pub(crate) async fn agent_environment_is_clean(fixture: &DriverFixture) {
    assert!(std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    let commands = "for each in /proc/[0-9]*/environ; do tr '\\0' '\\n' <$each; done";
    run_inside(fixture, commands, async |sandbox, seen| {
        let harmless = ["PATH", "PWD", "OLDPWD", "SHLVL", "_", "HOSTNAME", "TERM", "LANG", "USER", "LOGNAME", "SHELL"];
        for variable in seen.lines().filter(|line| line.contains('=')) {
            let (name, value) = variable.split_once('=').expect("line contains `=`");
            match name {
                "HOME" => assert_eq!(value, sandbox_paths::HOME),
                "GREENROOM_SESSION" => assert_eq!(value, sandbox.spec.session.to_string()),
                _ => assert!(harmless.contains(&name), "`{variable}` leaks into the sandbox"),
            }
        }
        for variable in ["HOME=", "PATH=", "GREENROOM_SESSION="] {
            assert!(seen.lines().any(|line| line.starts_with(variable)), "no `{variable}` in:\n{seen}");
        }
    })
    .await;
}

pub(crate) async fn agent_sees_nothing_of_host(fixture: &DriverFixture) {
    let host = tempfile::tempdir().expect("temporary directory is created");
    std::fs::write(host.path().join("secret"), "canary").expect("file is written");
    let path = host.path().display();
    let commands = format!(
        "cat {path}/secret; cat /proc/1/root{path}/secret; cat /etc/shadow; \
         for each in /run/docker.sock /var/run/docker.sock /run/containerd /run/dbus /dev/sda /dev/vda /dev/kmsg /dev/mem; do \
         [ -e $each ] && echo \"there is $each\"; done; \
         ls /proc | grep -c '^[0-9]' | sed 's/^/processes /'; pwd | sed 's/^/in /'"
    );
    run_inside(fixture, &commands, async |sandbox, seen| {
        assert!(!seen.contains("canary") && !seen.contains("there is") && !seen.contains("root:"), "{seen}");
        let processes: usize = line(&seen, "processes").parse().expect("output is a number");
        assert!(processes < 10, "processes of others are visible: {seen}");
        assert_eq!(line(&seen, "in"), sandbox_paths::WORKSPACE);
        assert!(sandbox.data().join("agent.sh").exists());
    })
    .await;
}

pub(crate) async fn agent_writes_only_to_its_directories(fixture: &DriverFixture) {
    let commands = format!(
        "may() {{ (: >\"$1\") 2>/dev/null && echo \"wrote $1\" || echo \"kept $1\"; }}\n\
         may /workspace/x; may $HOME/x; may /tmp/x; may /greenroom/run/agent/x\n\
         may /greenroom/x; may /greenroom/run/x; may /greenroom/run/gateway/x; may /usr/x; may /etc/x; may {agent}\n\
         rm -f {agent}; mv /greenroom/run/agent /greenroom/run/away; [ -x {agent} ] && echo 'agent binary is unchanged'",
        agent = sandbox_paths::AGENT_BINARY,
    );
    run_inside(fixture, &commands, async |sandbox, seen| {
        for path in ["/workspace/x", "/tmp/x", "/greenroom/run/agent/x", &format!("{}/x", sandbox_paths::HOME)] {
            assert!(seen.contains(&format!("wrote {path}\n")), "{path}:\n{seen}");
        }
        let denied = [
            "/greenroom/x",
            "/greenroom/run/x",
            "/greenroom/run/gateway/x",
            "/usr/x",
            "/etc/x",
            sandbox_paths::AGENT_BINARY,
        ];
        for path in denied {
            assert!(seen.contains(&format!("kept {path}\n")), "{path}:\n{seen}");
        }
        assert!(seen.contains("agent binary is unchanged"), "{seen}");
        assert!(sandbox.spec.workspace.join("x").exists() && sandbox.spec.run.agent().join("x").exists());
        let owner =
            std::os::unix::fs::MetadataExt::uid(&sandbox.spec.workspace.join("x").metadata().expect("file exists"));
        assert_eq!(owner, sandbox.spec.uid, "new files belong to the configured user");
    })
    .await;
}

/// The socket is visible again after a restarted server has bound it.
pub(crate) async fn agent_sees_rebound_gateway_socket(fixture: &DriverFixture) {
    let socket = sandbox_paths::GATEWAY_SOCKET;
    let script = format!("while :; do if [ -S {socket} ]; then : >/workspace/found; fi; sleep 0.05; done");
    fixture
        .with_sandbox(&script, async |sandbox| {
            sandbox.start().await;
            for _ in 0..2 {
                let listener = sandbox.spec.run.bind_gateway().expect("socket binds");
                sandbox.wait_for_file("found").await;
                drop(listener);
                std::fs::remove_file(sandbox.spec.run.gateway().join("gateway.sock")).expect("file exists");
                // The loop may have checked the old socket just before. It may then create the file
                // once more.
                eventually("the removed socket is not visible", async || {
                    let _ = std::fs::remove_file(sandbox.spec.workspace.join("found"));
                    tokio::time::sleep(std::time::Duration::from_millis(200)).await;
                    !sandbox.spec.workspace.join("found").exists()
                })
                .await;
            }
        })
        .await;
}

pub(crate) async fn fork_bomb_stays_within_pid_limit(fixture: &DriverFixture) {
    // After the bomb, the script runs only what needs no new process.
    let script = "( n=0; while [ $n -lt 400 ]; do sleep 1000 & n=$((n+1)); echo $n >/workspace/forks; done )\n\
                  : >/workspace/over; read forever </workspace/none; while :; do :; done";
    fixture
        .with_sandbox(script, async |sandbox| {
            sandbox.start().await;
            sandbox.wait_for_file("over").await;
            let forks: u64 = sandbox.read("forks").trim().parse().expect("output is a number");
            assert!((8..sandbox.spec.limits.pids).contains(&forks), "{forks} processes");
        })
        .await;
}

pub(crate) async fn memory_hog_is_killed(fixture: &DriverFixture) {
    // `tail` keeps the last line in memory, and the first line of this input never ends.
    run_inside(fixture, "tail /dev/zero >/dev/null; echo \"ended with $?\"", async |_, seen| {
        assert_ne!(line(&seen, "ended with"), "0");
    })
    .await;
}
