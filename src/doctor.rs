//! `greenroom doctor`: reports what this machine offers, and what to do about what is missing.

use std::{fmt::Display, sync::Arc};

use crate::{
    config::Config,
    data::DataDir,
    gateway::Gateway,
    sandbox::{
        SandboxError, SandboxNode, check_volumes_exclude,
        drivers::{DRIVERS, DriverEntry},
        volume_warnings,
    },
    store,
    terminal::print_line,
};

/// Finding of one check, a line of the report.
enum DoctorFinding {
    Fine(String),
    /// Missing, and not needed for the main job.
    Missing(String),
    /// Prevents the server from starting.
    Wrong(String),
}

impl DoctorFinding {
    /// Turns a missing part into an error, for a part that the server requires.
    fn required(self) -> DoctorFinding {
        match self {
            DoctorFinding::Missing(reason) => DoctorFinding::Wrong(reason),
            other => other,
        }
    }
}

/// Checks everything that a server needs, and prints the findings to stdout.
///
/// # Errors
/// Returns an error if a server could not start here.
pub async fn examine(config: Config) -> Result<(), String> {
    let mut report = vec![("data directory", data(&config))];
    let mut no_driver = true;
    for entry in DRIVERS {
        let (driver, image) = driver(&config, entry).await;
        no_driver &= !matches!(driver, DoctorFinding::Fine(_));
        // A driver that the configuration names has no substitute.
        let driver = if config.sandbox.driver == entry.choice { driver.required() } else { driver };
        report.push((entry.requirement, driver));
        report.extend(image.map(|image| ("default image", image)));
    }
    report.push(("sandbox users", users(&config)));
    report.extend(volumes(&config).into_iter().map(|finding| ("volumes", finding)));
    report.push(("model", model(&config)));
    for (subject, finding) in &report {
        let (mark, text) = match finding {
            DoctorFinding::Fine(text) => ("ok", text),
            DoctorFinding::Missing(text) => ("--", text),
            DoctorFinding::Wrong(text) => ("!!", text),
        };
        print_line(format_args!("{mark}  {subject:<16} {text}"))?;
    }
    if no_driver {
        return Err(
            "no sandbox can start: neither a Docker engine nor kernel support for the process driver is available"
                .to_owned(),
        );
    }
    match report.iter().filter(|(_, finding)| matches!(finding, DoctorFinding::Wrong(_))).count() {
        0 => Ok(()),
        n => Err(format!("{n} finding(s) marked `!!` must be fixed before a server can start")),
    }
}

fn data(config: &Config) -> DoctorFinding {
    let path = config.data.dir.display();
    match DataDir::open(&config.data.dir) {
        Err(e) => wrong(e),
        Ok(data) => match store::open_durable(&config.data, &data) {
            Ok(_) => match check_volumes_exclude(&config.sandbox.volumes, data.path()) {
                Ok(()) => DoctorFinding::Fine(format!("`{path}`")),
                Err(e) => wrong(e),
            },
            Err(e) => wrong(e),
        },
    }
}

/// Checks a driver, and the default image of sessions if its sandboxes have one.
async fn driver(config: &Config, entry: &DriverEntry) -> (DoctorFinding, Option<DoctorFinding>) {
    // The place of a server's sandboxes, because some file systems allow no programs (`noexec`).
    let data = &config.data.dir;
    let state = if data.is_dir() { data.clone() } else { std::env::temp_dir() };
    let state = state.join(format!("doctor-{}", std::process::id()));
    let node = SandboxNode { name: "doctor".to_owned(), sandboxes: state.clone(), programs: state.clone() };
    let image = &config.sandbox.image;
    let findings = async {
        let driver = (entry.open)(Arc::new(config.sandbox.clone()), node).await?;
        driver.check().await?;
        let image_finding = match driver.has_image(image).await {
            Ok(true) => DoctorFinding::Fine(format!("`{image}`")),
            Ok(false) => DoctorFinding::Missing(format!(
                "`{image}` is not present; the engine pulls it when a session first needs it"
            )),
            Err(e) => missing(e),
        };
        Ok::<_, SandboxError>((DoctorFinding::Fine(driver.isolation()), image_finding))
    };
    let (finding, image_finding) = findings
        .await
        .unwrap_or_else(|e| (missing(e), DoctorFinding::Missing(format!("`{image}`: unknown without an engine"))));
    // A leftover directory does no harm.
    let _ = std::fs::remove_dir_all(state);
    (finding, entry.has_engine.then_some(image_finding))
}

/// Reports whose quotas a sandbox can use up.
fn users(config: &Config) -> DoctorFinding {
    match config.sandbox.own_uids() {
        Ok(uids) => DoctorFinding::Fine(format!(
            "each sandbox runs as a user of its own, with an id from {} to {}",
            uids.start(),
            uids.end()
        )),
        Err(reason) => DoctorFinding::Missing(format!(
            "all sandboxes run as user {}: {reason}. One sandbox can use up what the kernel counts per user, such as \
             inotify instances, queued signals and descriptors in flight; the other sandboxes then get errors",
            config.sandbox.user().0
        )),
    }
}

/// Reports the volumes that agents cannot use as configured.
fn volumes(config: &Config) -> Vec<DoctorFinding> {
    let (uid, gid) = config.sandbox.user();
    let warnings = volume_warnings(&config.sandbox.volumes, uid, gid);
    warnings.into_iter().map(|warning| DoctorFinding::Missing(warning.text)).collect()
}

fn model(config: &Config) -> DoctorFinding {
    let gateway = match Gateway::new(config.model.clone(), &config.gateway) {
        Ok(gateway) => gateway,
        Err(e) => return wrong(e),
    };
    let model = gateway.default_model();
    match gateway.ready(&model) {
        Ok(()) if gateway.resolve(&model).demo => DoctorFinding::Missing(
            "no key is set, so sessions use the scripted model `demo`; set LLM_API_KEY and LLM_MODEL".to_owned(),
        ),
        Ok(()) => DoctorFinding::Fine(format!("`{model}`")),
        Err(e) => wrong(e),
    }
}

fn missing(reason: impl Display) -> DoctorFinding {
    DoctorFinding::Missing(reason.to_string())
}

fn wrong(reason: impl Display) -> DoctorFinding {
    DoctorFinding::Wrong(reason.to_string())
}
