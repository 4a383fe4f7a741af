//! Whether an image is here, and how it gets here.

use std::{collections::HashMap, time::Duration};

use bollard::{models::CreateImageInfo, query_parameters::CreateImageOptions};
use futures::StreamExt;
use greenroom_protocol::observation::SandboxPhase;
use tokio::time::Instant;

use super::{
    DockerDriver,
    engine::{DockerEngine, EngineCall, EngineError},
};
use crate::sandbox::{ProgressCallback, SandboxError};

const FIND_IMAGE: EngineCall = EngineCall { what: "look for the image", seconds: 10 };
const PULL: EngineCall = EngineCall { what: "pull the image", seconds: 3600 };
/// Without a word from the registry for so long, a pull has failed.
const PULL_STEP: EngineCall = EngineCall { what: "get on with pulling the image", seconds: 60 };

impl DockerDriver {
    pub async fn has_image(&self, image: &str) -> Result<bool, SandboxError> {
        check_name(image)?;
        match self.engine.call(FIND_IMAGE, self.engine.client.inspect_image(image)).await {
            Ok(_) => Ok(true),
            Err(EngineError::Missing { .. }) => Ok(false),
            Err(other) => Err(other.into()),
        }
    }

    /// Fetches the image from its registry, without a password.
    pub async fn pull(&self, image: &str, progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
        check_name(image)?;
        pull(&self.engine, image, progress).await
    }
}

async fn pull(engine: &DockerEngine, image: &str, progress: ProgressCallback<'_>) -> Result<(), SandboxError> {
    progress(SandboxPhase::Pulling, "");
    let options = CreateImageOptions { from_image: Some(with_tag(image)), ..CreateImageOptions::default() };
    let mut steps = engine.client.create_image(Some(options), None, None);
    let mut layers = PullProgress::default();
    let overdue = Instant::now() + Duration::from_secs(PULL.seconds);
    while Instant::now() < overdue {
        match engine.call(PULL_STEP, async { steps.next().await.transpose() }).await {
            Ok(Some(step)) => {
                if let Some(text) = layers.update(step) {
                    progress(SandboxPhase::Pulling, &text);
                }
            }
            Ok(None) => return Ok(()),
            Err(EngineError::Missing { detail, .. } | EngineError::Refused { detail, .. }) => {
                return Err(SandboxError::NoImage { image: image.to_owned(), detail });
            }
            Err(EngineError::Other(error)) => return Err(error),
        }
    }
    Err(PULL.overdue())
}

/// Keeps a name from reaching the engine that is none: it becomes part of a path there.
pub(super) fn check_name(image: &str) -> Result<(), SandboxError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    let parts = || image.split('/');
    let fits = image.len() <= 512
        && image.chars().all(is_plain)
        && parts().all(|part| part.starts_with(|c: char| c.is_ascii_alphanumeric()) && !part.ends_with(':'));
    match fits {
        true => Ok(()),
        false => Err(SandboxError::NoImage {
            image: image.chars().take(100).collect(),
            detail: "that is no name of an image (`name:tag`, `registry/name:tag`)".to_owned(),
        }),
    }
}

/// Without a tag the engine would fetch every tag there is.
fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    match last.contains([':', '@']) {
        true => image.to_owned(),
        false => format!("{image}:latest"),
    }
}

/// How far the layers of a pull are.
#[derive(Default)]
struct PullProgress {
    /// Fetched and whole size in bytes, by the layer's id.
    sizes: HashMap<String, (i64, i64)>,
    last_text: String,
}

impl PullProgress {
    /// What there is to tell after this step, where it changes what was told last.
    fn update(&mut self, step: CreateImageInfo) -> Option<String> {
        let detail = step.progress_detail?;
        let (current, total) = (detail.current?, detail.total?);
        // The same figures come again while a layer is unpacked, from zero.
        if step.status.as_deref() != Some("Downloading") {
            return None;
        }
        self.sizes.insert(step.id?, (current, total));
        let sum = |of: fn(&(i64, i64)) -> i64| self.sizes.values().map(of).sum::<i64>() as f64 / 1e6;
        let text = format!("{:.0} of {:.0} MB", sum(|size| size.0), sum(|size| size.1));
        (text != self.last_text).then(|| {
            self.last_text.clone_from(&text);
            text
        })
    }
}

#[cfg(test)]
mod tests {
    use bollard::models::ProgressDetail;

    use super::*;

    #[test]
    fn a_name_is_no_path() {
        for image in ["a", "a:1", "debian:bookworm-slim", "localhost:5000/a/b:c", "a@sha256:0123abcd", "ghcr.io/a/b_c"]
        {
            check_name(image).unwrap_or_else(|e| panic!("{image}: {e}"));
        }
        for image in
            ["", "/", "a/", "a//b", "../containers/x", "a/../b", "a/./b", ".", "a?b", "a b", "a%2fb", "-a", "a\n", "a:"]
        {
            assert!(matches!(check_name(image), Err(SandboxError::NoImage { .. })), "{image}");
        }
    }

    #[test]
    fn one_tag_is_pulled() {
        assert_eq!(with_tag("a"), "a:latest");
        assert_eq!(with_tag("localhost:5000/a"), "localhost:5000/a:latest");
        assert_eq!(with_tag("localhost:5000/a:1"), "localhost:5000/a:1");
        assert_eq!(with_tag("a@sha256:00"), "a@sha256:00");
    }

    #[test]
    fn progress_adds_up_and_is_told_once() {
        let mut layers = PullProgress::default();
        let mut step = |id: &str, status: &str, current, total| {
            layers.update(CreateImageInfo {
                id: Some(id.into()),
                status: Some(status.into()),
                progress_detail: Some(ProgressDetail { current: Some(current), total: Some(total) }),
                error_detail: None,
            })
        };
        assert_eq!(step("a", "Downloading", 2_000_000, 40_000_000).as_deref(), Some("2 of 40 MB"));
        assert_eq!(step("b", "Downloading", 1_000_000, 8_000_000).as_deref(), Some("3 of 48 MB"));
        assert_eq!(step("b", "Downloading", 1_000_001, 8_000_000), None);
        assert_eq!(step("b", "Extracting", 1, 8_000_000), None);
        assert_eq!(step("a", "Downloading", 11_000_000, 40_000_000).as_deref(), Some("12 of 48 MB"));
    }
}
