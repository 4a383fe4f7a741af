//! Plan of an agent: one Markdown file in the workspace, with one checkbox for each step.

use crate::{
    observation::{Observation, ObservationKind, PlanItem, PlanItemState},
    sandbox_paths::WORKSPACE,
};

/// Path of the plan below the session's directory, unless the settings name another.
pub const PLAN_PATH: &str = ".greenroom/plan.md";

/// Returns the path of the plan inside the workspace. `directory` is the session's directory, and
/// `path` the plan's path below it. A plan outside the workspace keeps its absolute path.
pub fn plan_in_workspace(directory: &str, path: &str) -> String {
    let below = directory.strip_prefix(WORKSPACE).filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let (root, parts) = match below {
        Some(rest) => ("", rest),
        None => ("/", directory),
    };
    let parts: Vec<&str> = parts.split('/').filter(|part| !part.is_empty() && *part != ".").chain([path]).collect();
    format!("{root}{}", parts.join("/"))
}

/// Returns the observation of a plan. `path` is its path inside the workspace.
pub fn plan_observation(path: String, markdown: String) -> Observation {
    Observation { kind: ObservationKind::Plan { path, items: plan_items(&markdown) }, content: markdown }
}

/// Returns the lines with a checkbox: `[ ]`, `[x]` or, for a step in progress, `[~]` or `[/]`.
/// Lines within a code fence are no items.
pub fn plan_items(markdown: &str) -> Vec<PlanItem> {
    let mut fence: Option<char> = None;
    let mut items = Vec::new();
    for line in markdown.lines() {
        let line = line.trim_start();
        let mark = ['`', '~'].into_iter().find(|mark| line.chars().take(3).filter(|c| c == mark).count() == 3);
        match (fence, mark) {
            (None, Some(_)) => fence = mark,
            (Some(open), Some(mark)) if open == mark => fence = None,
            (Some(_), _) => {}
            (None, None) => items.extend(plan_item(line)),
        }
    }
    items
}

fn plan_item(line: &str) -> Option<PlanItem> {
    let bullet = line.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(['-', '*', '+', '.', ')']);
    let (mark, text) = bullet.trim_start().strip_prefix('[')?.split_once(']')?;
    let state = match mark {
        "x" | "X" => PlanItemState::Completed,
        "~" | "/" => PlanItemState::InProgress,
        " " | "" => PlanItemState::Pending,
        _ => return None,
    };
    // `[x](address)` is a link.
    if text.starts_with(['(', '[', ':']) {
        return None;
    }
    Some(PlanItem { text: text.trim().to_owned(), done: state == PlanItemState::Completed, state: Some(state) })
}

#[cfg(test)]
mod tests {
    use PlanItemState::{Completed, InProgress, Pending};

    use super::*;

    #[test]
    fn checkbox_lines_are_items() {
        let check = |markdown: &str, expected: &[(&str, PlanItemState)]| {
            let expected: Vec<PlanItem> = expected
                .iter()
                .map(|(text, state)| PlanItem {
                    text: (*text).to_owned(),
                    done: *state == Completed,
                    state: Some(*state),
                })
                .collect();
            assert_eq!(plan_items(markdown), expected, "{markdown}");
        };
        check("- [ ] write it", &[("write it", Pending)]);
        check("  * [x] run it", &[("run it", Completed)]);
        check("1. [X] ship it", &[("ship it", Completed)]);
        check("- [~] build it\n- [/] test it", &[("build it", InProgress), ("test it", InProgress)]);
        check("- [link](https://example.org)\n- [x](https://example.org)\n# Plan", &[]);
        check("```\n- [ ] an example\n```\n- [ ] a step", &[("a step", Pending)]);
        check("~~~\n```\n- [ ] an example\n~~~\n- [ ] a step", &[("a step", Pending)]);
    }

    #[test]
    fn path_is_relative_to_the_workspace() {
        let check = |directory, expected| assert_eq!(plan_in_workspace(directory, PLAN_PATH), expected, "{directory}");
        check("/workspace", ".greenroom/plan.md");
        check("/workspace/", ".greenroom/plan.md");
        check("/workspace/a/./b", "a/b/.greenroom/plan.md");
        check("/workspaces", "/workspaces/.greenroom/plan.md");
        check("/srv", "/srv/.greenroom/plan.md");
    }

    #[test]
    fn item_of_an_earlier_version_has_no_state() {
        let item: PlanItem = serde_json::from_str(r#"{"text":"a","done":true}"#).expect("an item");
        assert_eq!(item, PlanItem { text: "a".to_owned(), done: true, state: None });
        assert_eq!(serde_json::to_string(&item).expect("an item"), r#"{"text":"a","done":true}"#);
        let item = PlanItem { state: Some(InProgress), ..item };
        assert!(serde_json::to_string(&item).expect("an item").ends_with(r#""state":"in_progress"}"#));
    }
}
