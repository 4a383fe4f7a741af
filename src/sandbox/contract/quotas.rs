//! Promise of sandboxes with users of their own: none can use up what the kernel counts per user.

use super::{DriverFixture, SandboxFixture};
use crate::sandbox::{SandboxSpec, change_owner};

/// Users of the two sandboxes. No other test uses them.
const USERS: [u32; 2] = [10_101, 10_102];

/// Returns the sandbox's spec with another user, and gives its directories to the user.
fn as_user(sandbox: &SandboxFixture<'_>, uid: u32, adapt: impl Fn(SandboxSpec) -> SandboxSpec) -> SandboxSpec {
    let spec = SandboxSpec { uid, ..sandbox.spec.clone() };
    for tree in [&spec.workspace, &spec.home, &spec.run.agent()] {
        change_owner(tree, uid, spec.gid).expect("owner is changed");
    }
    adapt(spec)
}

/// Checks that one sandbox takes all it can, and its neighbour still gets something of each.
///
/// `adapt` adds to both specs what the driver needs to run Python.
pub(crate) async fn greedy_sandbox_leaves_quotas_to_its_neighbour(
    fixture: &DriverFixture,
    adapt: impl Fn(SandboxSpec) -> SandboxSpec,
) {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("skipped: only root can give each sandbox a user of its own");
    }
    let script = |argument: &str| {
        let program = include_str!("quotas.py");
        format!("cat >/tmp/quotas.py <<'END'\n{program}END\nexec python3 /tmp/quotas.py {argument}")
    };
    fixture
        .with_sandbox(&script("all"), async |greedy| {
            fixture.start(&as_user(greedy, USERS[0], &adapt), &|_, _| ()).await.expect("start succeeds");
            greedy.wait_for_file("taken").await;
            fixture
                .with_sandbox(&script(""), async |neighbour| {
                    fixture.start(&as_user(neighbour, USERS[1], &adapt), &|_, _| ()).await.expect("start succeeds");
                    let got = neighbour.wait_for_file("got").await;
                    let expected = "inotify instances\nqueued signals\ndescriptors in flight\nmessage queues\n";
                    assert_eq!(got, expected);
                })
                .await;
        })
        .await;
}
