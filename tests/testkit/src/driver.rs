//! Sandbox driver that a scenario runs on, and the macro that makes one scenario a test for each
//! driver.

use tokio::process::Command;

/// Sandbox driver, by its `--sandbox` name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestDriver {
    Process,
    Docker,
}

impl TestDriver {
    pub fn name(self) -> &'static str {
        match self {
            TestDriver::Process => "process",
            TestDriver::Docker => "docker",
        }
    }

    pub fn other(self) -> TestDriver {
        match self {
            TestDriver::Process => TestDriver::Docker,
            TestDriver::Docker => TestDriver::Process,
        }
    }

    /// Returns true if the driver is available here. `cargo xtask test` sets
    /// `GREENROOM_TEST_DOCKER=required` if it must be.
    pub async fn is_here(self) -> bool {
        match self {
            TestDriver::Process => true,
            TestDriver::Docker => {
                let image = Command::new("docker").args(["image", "inspect", IMAGE]).output().await;
                let here = image.is_ok_and(|output| output.status.success());
                let required = std::env::var("GREENROOM_TEST_DOCKER").is_ok_and(|value| value == "required");
                assert!(here || !required, "the image `{IMAGE}` is missing; `cargo xtask test` builds it");
                here
            }
        }
    }
}

/// Image of the sandboxes. `cargo xtask test` builds it.
pub const IMAGE: &str = "greenroom-test-debian:latest";

/// Makes a test of each scenario (`async fn(Driver)`) for each driver.
#[macro_export]
macro_rules! on_each_driver {
    ($($scenario:ident),+ $(,)?) => {
        mod process {
            $(#[tokio::test]
            async fn $scenario() {
                super::$scenario($crate::driver::TestDriver::Process).await;
            })+
        }
        mod docker {
            $(#[tokio::test]
            async fn $scenario() {
                if $crate::driver::TestDriver::Docker.is_here().await {
                    super::$scenario($crate::driver::TestDriver::Docker).await;
                }
            })+
        }
    };
}
