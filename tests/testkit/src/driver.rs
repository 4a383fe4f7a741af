//! Which sandbox driver a scenario runs on, and how one scenario becomes a test for each.

use tokio::process::Command;

/// A sandbox driver, as `--sandbox` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestDriver {
    Process,
    Docker,
}

impl TestDriver {
    pub(crate) fn name(self) -> &'static str {
        match self {
            TestDriver::Process => "process",
            TestDriver::Docker => "docker",
        }
    }

    pub(crate) fn other(self) -> TestDriver {
        match self {
            TestDriver::Process => TestDriver::Docker,
            TestDriver::Docker => TestDriver::Process,
        }
    }

    /// Whether it can be tried here. `cargo xtask test` says when it must be (`GREENROOM_TEST_DOCKER=required`).
    pub(crate) async fn is_here(self) -> bool {
        match self {
            TestDriver::Process => true,
            TestDriver::Docker => {
                let image = Command::new("docker").args(["image", "inspect", IMAGE]).output().await;
                let here = image.is_ok_and(|output| output.status.success());
                let required = std::env::var("GREENROOM_TEST_DOCKER").is_ok_and(|value| value == "required");
                assert!(here || !required, "the image `{IMAGE}` is not there; `cargo xtask test` makes it");
                here
            }
        }
    }
}

/// What sandboxes are made from; `cargo xtask test` makes it.
pub(crate) const IMAGE: &str = "greenroom-test-debian:latest";

/// Makes a test of each scenario (`async fn(Driver)`) for each driver.
macro_rules! on_each_driver {
    ($($scenario:ident),+ $(,)?) => {
        mod process {
            $(#[tokio::test]
            async fn $scenario() {
                super::$scenario($crate::harness::driver::TestDriver::Process).await;
            })+
        }
        mod docker {
            $(#[tokio::test]
            async fn $scenario() {
                if $crate::harness::driver::TestDriver::Docker.is_here().await {
                    super::$scenario($crate::harness::driver::TestDriver::Docker).await;
                }
            })+
        }
    };
}
pub(crate) use on_each_driver;
