//! The driver on the contract's bench, and what only a process driver has to show. A keeper here is this test program,
//! which a small script starts for the one test that is none.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use tempfile::TempDir;

use super::*;
use crate::sandbox::contract::{self, Bench};

/// The stream that the script keeps for the keeper's answer, away from what the test harness prints.
const ANSWER: i32 = 7;
const AS_KEEPER: &str = "GREENROOM_TEST_KEEPER";

/// Not a test but what a keeper does, in a process of its own.
#[test]
fn keeper() {
    if std::env::var_os(AS_KEEPER).is_some() {
        // SAFETY: the script made the descriptor for this, and nothing else here uses stdout any more.
        unsafe { libc::dup2(ANSWER, libc::STDOUT_FILENO) };
        let code = keeper_main();
        std::process::exit(if code == std::process::ExitCode::SUCCESS { 0 } else { 1 });
    }
}

/// A state directory of its own, and the script.
struct Site {
    dir: TempDir,
}

impl Site {
    fn new() -> Site {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let program = std::env::current_exe().expect("this program has a path");
        let script = format!(
            "#!/bin/sh\nexport {AS_KEEPER}=1\nexec {} --exact sandbox::process::tests::keeper --test-threads=1 \
             {ANSWER}>&1 >/dev/null\n",
            program.display()
        );
        fs::write(dir.path().join("keeper"), script).expect("the script is written");
        fs::set_permissions(dir.path().join("keeper"), fs::Permissions::from_mode(0o755)).expect("it may be run");
        Site { dir }
    }

    fn driver(&self) -> Process {
        Process::new(ProcessOptions {
            node: "test".into(),
            state: self.dir.path().join("state"),
            keeper: self.dir.path().join("keeper"),
            unconfined: false,
        })
        .expect("it opens")
    }
}

async fn bench() -> Option<Bench> {
    let site = Box::leak(Box::new(Site::new()));
    Some(Bench { sandbox: Arc::new(site.driver()), reopened: Arc::new(site.driver()), image: String::new() })
}

mod promises {
    crate::sandbox::contract::suite!(super::bench);
}
