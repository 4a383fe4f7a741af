//! Images: looking them up on the engine and pulling them.

use std::{collections::HashMap, time::Duration};

use bollard::{models::CreateImageInfo, query_parameters::CreateImageOptions};
use futures::StreamExt;
use greenroom_protocol::observation::SandboxPhase;
use tokio::time::Instant;

use super::engine::{DockerEngine, EngineCall, EngineError};
use crate::sandbox::{ProgressCallback, SandboxError};

const FIND_IMAGE: EngineCall = EngineCall { what: "look for the image", seconds: 10 };
const PULL: EngineCall = EngineCall { what: "pull the image", seconds: 3600 };
/// Deadline for the next progress message of a pull.
const PULL_STEP: EngineCall = EngineCall { what: "report progress of pulling the image", seconds: 60 };

/// Returns true if the image is on the engine.
///
/// # Errors
/// Fails if `image` is no image name, or if the engine does not answer.
pub(super) async fn exists(engine: &DockerEngine, image: &str) -> Result<bool, SandboxError> {
    check_name(image)?;
    match engine.call(FIND_IMAGE, engine.client.inspect_image(image)).await {
        Ok(_) => Ok(true),
        Err(EngineError::Missing { .. }) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

/// Pulls the image from its registry, without credentials.
///
/// # Errors
/// Fails with [`SandboxError::NoImage`] if the registry does not provide the image. Fails with
/// [`SandboxError::Deadline`] after 60 s without progress, or after 1 h in total.
pub(super) async fn pull(
    engine: &DockerEngine,
    image: &str,
    progress: ProgressCallback<'_>,
) -> Result<(), SandboxError> {
    check_name(image)?;
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

/// Rejects an invalid image name. The name becomes a part of a path in the engine's API.
pub(super) fn check_name(image: &str) -> Result<(), SandboxError> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    let parts = || image.split('/');
    let is_valid = image.len() <= 512
        && image.chars().all(is_allowed)
        && parts().all(|part| part.starts_with(|c: char| c.is_ascii_alphanumeric()) && !part.ends_with(':'));
    match is_valid {
        true => Ok(()),
        false => Err(SandboxError::NoImage {
            image: image.chars().take(100).collect(),
            detail: "an image name must look like `name:tag` or `registry/name:tag`".to_owned(),
        }),
    }
}

/// Adds the tag `latest` if there is none. Without a tag, the engine would pull every tag.
fn with_tag(image: &str) -> String {
    let last = image.rsplit('/').next().unwrap_or(image);
    match last.contains([':', '@']) {
        true => image.to_owned(),
        false => format!("{image}:latest"),
    }
}

/// Progress of the layers of a pull.
#[derive(Default)]
struct PullProgress {
    /// Fetched and total bytes, by layer id.
    sizes: HashMap<String, (i64, i64)>,
    last_text: String,
}

impl PullProgress {
    /// Records a step. Returns the progress text if it differs from the last one.
    fn update(&mut self, step: CreateImageInfo) -> Option<String> {
        let detail = step.progress_detail?;
        let (current, total) = (detail.current?, detail.total?);
        // The same figures come again, from zero, while a layer is unpacked.
        if step.status.as_deref() != Some("Downloading") {
            return None;
        }
        self.sizes.insert(step.id?, (current, total));
        let sum = |select: fn(&(i64, i64)) -> i64| self.sizes.values().map(select).sum::<i64>() as f64 / 1e6;
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
    fn invalid_image_names_are_rejected() {
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
    fn missing_tag_becomes_latest() {
        assert_eq!(with_tag("a"), "a:latest");
        assert_eq!(with_tag("localhost:5000/a"), "localhost:5000/a:latest");
        assert_eq!(with_tag("localhost:5000/a:1"), "localhost:5000/a:1");
        assert_eq!(with_tag("a@sha256:00"), "a@sha256:00");
    }

    #[test]
    fn progress_sums_layers_and_is_reported_once() {
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
