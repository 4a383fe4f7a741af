//! Rules of projects: a file in the data directory, and a copy in memory.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::{Deserialize, Serialize};
use tracing::warn;

use super::ApprovalRule;
use crate::data::{DataDir, ExistingFile};

/// File in the data directory.
const FILE: &str = "approval_rules.json";

/// Name of a damaged file. A later damaged file replaces the earlier one.
const DAMAGED_FILE: &str = "approval_rules.json.damaged";

/// Largest file that is read, in bytes.
const FILE_LIMIT: u64 = 8 * 1024 * 1024;

/// Rules of one project.
const RULES_LIMIT: usize = 200;

/// Projects with rules.
const PROJECTS_LIMIT: usize = 1000;

/// Rules that people added to projects, by the source of the workspace.
#[derive(Debug)]
pub struct ProjectRules {
    data: Arc<DataDir>,
    projects: Mutex<ProjectMap>,
    /// Locked during a change, so that changes reach the disk in their order.
    change: tokio::sync::Mutex<()>,
}

type ProjectMap = BTreeMap<String, Arc<[ApprovalRule]>>;

/// Reason for which the rules of a project did not change.
#[derive(Debug, thiserror::Error)]
pub enum ProjectRulesError {
    #[error("project `{0}` no longer has the rule; list the rules again")]
    NoRule(String),
    #[error("{0}")]
    Invalid(String),
    #[error("project `{0}` already has {RULES_LIMIT} rules; remove one first")]
    TooManyRules(String),
    #[error("{PROJECTS_LIMIT} projects already have rules; remove the rules of one first")]
    TooManyProjects,
    #[error("cannot write `{FILE}` in the data directory: {0}")]
    Io(#[source] io::Error),
}

/// Content of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StoredProjectRules {
    projects: BTreeMap<String, Vec<ApprovalRule>>,
}

impl ProjectRules {
    /// Reads the rules. A damaged file is renamed to `approval_rules.json.damaged` with a warning,
    /// and there are no rules then: without them, calls ask.
    pub fn open(data: Arc<DataDir>) -> ProjectRules {
        let projects = read(&data).unwrap_or_else(|detail| {
            let (from, to) = (data.path().join(FILE), data.path().join(DAMAGED_FILE));
            match std::fs::rename(&from, &to) {
                Ok(()) => warn!(
                    "`{}` is damaged and was renamed to `{DAMAGED_FILE}`; projects have no rules: {detail}",
                    from.display()
                ),
                Err(e) => warn!("`{}` is damaged ({detail}) and cannot be renamed: {e}", from.display()),
            }
            ProjectMap::new()
        });
        ProjectRules { data, projects: Mutex::new(projects), change: tokio::sync::Mutex::new(()) }
    }

    /// Returns the rules of a project, oldest first.
    pub fn list(&self, source: &str) -> Arc<[ApprovalRule]> {
        self.projects().get(source).cloned().unwrap_or_default()
    }

    /// Returns the rules of all projects.
    pub fn all(&self) -> Vec<(String, Arc<[ApprovalRule]>)> {
        self.projects().iter().map(|(source, rules)| (source.clone(), rules.clone())).collect()
    }

    /// Adds a rule to a project. Returns false if the project has the rule already. The rule is on
    /// the disk when this returns.
    ///
    /// # Errors
    /// An invalid rule, too many rules, or a file that cannot be written. Nothing changes then.
    pub async fn add(&self, source: &str, rule: ApprovalRule) -> Result<bool, ProjectRulesError> {
        rule.check().map_err(ProjectRulesError::Invalid)?;
        let _change = self.change.lock().await;
        let mut projects = self.projects().clone();
        let is_full = projects.len() >= PROJECTS_LIMIT && !projects.contains_key(source);
        let rules = projects.entry(source.to_owned()).or_default();
        if rules.contains(&rule) {
            return Ok(false);
        }
        if rules.len() >= RULES_LIMIT {
            return Err(ProjectRulesError::TooManyRules(source.to_owned()));
        }
        if is_full {
            return Err(ProjectRulesError::TooManyProjects);
        }
        *rules = rules.iter().cloned().chain([rule]).collect();
        self.save(projects).await?;
        Ok(true)
    }

    /// Removes `rule`.
    ///
    /// # Errors
    /// No such rule, or a file that cannot be written. Nothing changes then.
    pub async fn remove(&self, source: &str, rule: &ApprovalRule) -> Result<(), ProjectRulesError> {
        let _change = self.change.lock().await;
        let mut projects = self.projects().clone();
        let mut rules = projects.get(source).map(|rules| rules.to_vec()).unwrap_or_default();
        let Some(index) = rules.iter().position(|own| own == rule) else {
            return Err(ProjectRulesError::NoRule(source.to_owned()));
        };
        rules.remove(index);
        match rules.is_empty() {
            true => drop(projects.remove(source)),
            false => drop(projects.insert(source.to_owned(), rules.into())),
        }
        self.save(projects).await
    }

    /// Writes the projects, and then publishes them.
    async fn save(&self, projects: ProjectMap) -> Result<(), ProjectRulesError> {
        let stored = StoredProjectRules {
            projects: projects.iter().map(|(source, rules)| (source.clone(), rules.to_vec())).collect(),
        };
        let text = serde_json::to_string_pretty(&stored).expect("texts are JSON");
        let data = self.data.clone();
        let written = tokio::task::spawn_blocking(move || data.write_private(FILE, &text, ExistingFile::Replace)).await;
        written.map_err(io::Error::other).flatten().map_err(ProjectRulesError::Io)?;
        *self.projects() = projects;
        Ok(())
    }

    fn projects(&self) -> MutexGuard<'_, ProjectMap> {
        // The map is replaced as a whole, so a panic leaves no half of a change.
        self.projects.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(data: &DataDir) -> Result<ProjectMap, String> {
    let text = match data.read_private(FILE, FILE_LIMIT).map_err(|e| e.to_string())? {
        Some(text) => text,
        None => return Ok(ProjectMap::new()),
    };
    let stored: StoredProjectRules = serde_json::from_str(&text).map_err(|e| e.to_string())?;
    stored.projects.values().flatten().try_for_each(ApprovalRule::check)?;
    Ok(stored.projects.into_iter().map(|(source, rules)| (source, rules.into())).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::approvals::RuleAction;

    fn rule(command: &str) -> ApprovalRule {
        let json = serde_json::json!({ "command": command, "action": "allow" });
        serde_json::from_value(json).expect("the rule is valid")
    }

    fn data() -> (tempfile::TempDir, Arc<DataDir>) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let data = DataDir::open(&dir.path().join("data")).expect("the directory is created");
        (dir, Arc::new(data))
    }

    #[tokio::test]
    async fn rules_survive_a_restart_and_belong_to_their_project() {
        let (_dir, data) = data();
        let rules = ProjectRules::open(data.clone());
        assert!(rules.add("/home/a", rule("git push *")).await.expect("the file is written"));
        assert!(!rules.add("/home/a", rule("git push *")).await.expect("nothing changes"));
        assert!(rules.add("/home/a", rule("make")).await.expect("the file is written"));
        assert!(rules.add("/home/b", rule("ls")).await.expect("the file is written"));
        let mode = std::fs::metadata(data.path().join(FILE)).expect("the file exists").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);

        let rules = ProjectRules::open(data.clone());
        assert_eq!(rules.list("/home/a")[..], [rule("git push *"), rule("make")]);
        assert_eq!(rules.list("/home/c").len(), 0);
        rules.remove("/home/a", &rule("git push *")).await.expect("the rule exists");
        let again = rules.remove("/home/a", &rule("git push *")).await;
        assert!(matches!(again, Err(ProjectRulesError::NoRule(_))), "another rule stays: {again:?}");
        rules.remove("/home/b", &rule("ls")).await.expect("the rule exists");
        let all = ProjectRules::open(data).all();
        assert_eq!(
            all.iter().map(|(source, rules)| (source.as_str(), rules.len())).collect::<Vec<_>>(),
            [("/home/a", 1)]
        );
    }

    #[tokio::test]
    async fn damaged_file_is_set_aside() {
        for text in ["{", "{\"projects\":{\"/a\":[{\"path\":\"[\",\"action\":\"allow\"}]}}", "{\"other\":1}"] {
            let (_dir, data) = data();
            data.write_private(FILE, text, ExistingFile::Replace).expect("the file is written");
            let rules = ProjectRules::open(data.clone());
            assert_eq!(rules.all().len(), 0, "{text}");
            let kept = std::fs::read_to_string(data.path().join(DAMAGED_FILE)).expect("the damaged file stays");
            assert_eq!(kept, text);
            rules.add("/a", rule("ls")).await.expect("a new file is written");
            assert_eq!(ProjectRules::open(data).list("/a").len(), 1);
        }
    }

    #[tokio::test]
    async fn invalid_and_further_rules_change_nothing() {
        let (_dir, data) = data();
        let rules = ProjectRules::open(data);
        let invalid =
            ApprovalRule { path: Some("[".to_owned()), command: None, action: RuleAction::Allow, ..rule("x") };
        assert!(matches!(rules.add("/a", invalid).await, Err(ProjectRulesError::Invalid(_))));
        for number in 0..RULES_LIMIT {
            rules.add("/a", rule(&format!("ls {number}"))).await.expect("there is room");
        }
        assert!(matches!(rules.add("/a", rule("one more")).await, Err(ProjectRulesError::TooManyRules(_))));
        assert_eq!(rules.list("/a").len(), RULES_LIMIT);
    }

    #[tokio::test]
    async fn rule_that_cannot_be_written_is_not_used() {
        let (_dir, data) = data();
        let rules = ProjectRules::open(data.clone());
        // A directory is in the way of the new file.
        std::fs::create_dir(data.path().join(FILE)).expect("the directory is created");
        assert!(matches!(rules.add("/a", rule("ls")).await, Err(ProjectRulesError::Io(_))));
        assert_eq!(rules.list("/a").len(), 0);
    }
}
