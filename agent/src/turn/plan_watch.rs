//! Changes of the plan's file that the agent did not make with its `plan` tool: edits of the user,
//! and of commands.

use std::{path::Path, time::Duration};

use greenroom_protocol::{
    Action, excerpt,
    plan::{plan_in_workspace, plan_observation},
};

use super::TurnContext;
use crate::{clock, threads::off_thread, tools};

/// Size limit of a plan for the model, in bytes.
const PLAN_TEXT_LIMIT: usize = 16 * 1024;

/// Time in which the file must be readable. Afterwards the step goes on without the file.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// Newest plan that the model has seen.
#[derive(Debug, Default)]
pub(super) struct PlanWatch {
    /// `None`: the session has no plan yet.
    seen: Option<String>,
}

impl PlanWatch {
    /// Records a plan that the model has seen. Returns `true` if it is new.
    pub(super) fn see(&mut self, markdown: &str) -> bool {
        let is_new = self.seen.as_deref() != Some(markdown);
        if is_new {
            self.seen = Some(markdown.to_owned());
        }
        is_new
    }

    /// Compares the file with the plan that the model has seen. If the file is newer, reports the
    /// new plan and returns its text for the model. A missing file is no change.
    pub(super) async fn check(&mut self, context: &TurnContext) -> Option<String> {
        let markdown = read_plan(context).await?;
        if !self.see(&markdown) {
            return None;
        }
        let settings = context.settings();
        let text = changed_text(settings.plan_path(), &markdown);
        let path = plan_in_workspace(&settings.directory, settings.plan_path());
        context.outgoing.event(None, plan_observation(path, markdown)).await;
        Some(text)
    }

    /// Returns an error for the model if `action` replaces a plan that the model has not seen. The
    /// next step reads that plan.
    pub(super) async fn outdated(&self, action: &Action, context: &TurnContext) -> Option<String> {
        let Action::Plan { content } = action else { return None };
        let present = read_plan(context).await.filter(|present| present != content)?;
        let is_new = self.seen.as_deref() != Some(&present);
        is_new.then(|| {
            "the plan was changed meanwhile, by the user or by a command; read the changed plan, which follows, and \
             write yours again with both changes"
                .to_owned()
        })
    }

    /// Records the plan of a call that has succeeded.
    pub(super) fn written(&mut self, action: &Action) {
        if let Action::Plan { content } = action {
            self.see(content);
        }
    }
}

/// Returns a changed plan as text for the model.
pub(super) fn changed_text(path: &str, markdown: &str) -> String {
    let shown = excerpt(markdown, PLAN_TEXT_LIMIT).map_or_else(|| markdown.to_owned(), |cut| cut.text);
    format!("[The plan in `{path}` was changed, by the user or by a command. The plan is now:]\n{shown}")
}

async fn read_plan(context: &TurnContext) -> Option<String> {
    let settings = context.settings();
    let file = Path::new(&settings.directory).join(settings.plan_path());
    let reading = off_thread(move || tools::read_text(&file, "the plan").ok());
    tokio::select! {
        biased;
        () = context.stop.cancelled() => None,
        read = reading => read,
        () = clock::sleep(READ_TIMEOUT) => None,
    }
}
