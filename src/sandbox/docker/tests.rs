//! The contract, against the engine of this machine, and what only containers can be asked.

use std::sync::{Arc, OnceLock};

use super::{Docker, DockerOptions, test_image};
use crate::sandbox::{Sandbox, SandboxError, contract, contract::Bench};

async fn driver() -> Result<Docker, SandboxError> {
    let host = std::env::var("DOCKER_HOST").ok();
    Docker::connect(DockerOptions { node: "greenroom-tests".into(), host, ..DockerOptions::default() }).await
}

/// `None` where the tests were told to do without an engine.
async fn bench() -> Option<Bench> {
    if std::env::var_os("GREENROOM_TEST_ENGINE").is_some_and(|engine| engine == "none") {
        eprintln!("skipped: GREENROOM_TEST_ENGINE is `none`");
        return None;
    }
    let sandbox: Arc<dyn Sandbox> = match driver().await {
        Ok(docker) => Arc::new(docker),
        Err(e) => panic!("{e}\nrun `cargo xtask test`, which starts an engine, or set GREENROOM_TEST_ENGINE=none"),
    };
    let reopened = Arc::new(driver().await.expect("it answers again"));
    static IMAGE: OnceLock<&str> = OnceLock::new();
    let image = IMAGE.get_or_init(test_image::busybox).to_string();
    Some(Bench { sandbox, reopened, image })
}

contract::suite!(bench);
