//! `greenroom doctor`: reports what this machine offers, and what to do about what is missing.

use std::{
    fmt::Display,
    io::{self, Write},
};

use crate::{
    config::{Config, DriverChoice},
    data::DataDir,
    gateway::Gateway,
    sandbox::{
        DockerDriver, SandboxDriver,
        process::{ProcessDriver, ProcessOptions},
    },
    store, wiring,
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
    let data = data(&config);
    let (docker, image) = docker(&config).await;
    let process = process(&config).await;
    let no_driver = !matches!(docker, DoctorFinding::Fine(_)) && !matches!(process, DoctorFinding::Fine(_));
    // A driver that the configuration names has no substitute.
    let (docker, process) = match config.sandbox.driver {
        DriverChoice::Docker => (docker.required(), process),
        DriverChoice::Process => (docker, process.required()),
        DriverChoice::Auto => (docker, process),
    };
    let report = [
        ("data directory", data),
        ("Docker engine", docker),
        ("default image", image),
        ("process sandbox", process),
        ("model", model(&config)),
    ];
    for (subject, finding) in &report {
        let (mark, text) = match finding {
            DoctorFinding::Fine(text) => ("ok", text),
            DoctorFinding::Missing(text) => ("--", text),
            DoctorFinding::Wrong(text) => ("!!", text),
        };
        // Fails if the reader has gone.
        let _ = writeln!(io::stdout(), "{mark}  {subject:<16} {text}");
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
            Ok(_) => match wiring::check_volumes_exclude(&wiring::volumes(&config.sandbox), data.path()) {
                Ok(()) => DoctorFinding::Fine(format!("`{path}`")),
                Err(e) => wrong(e),
            },
            Err(e) => wrong(e),
        },
    }
}

/// Checks the engine and the default image of sessions.
async fn docker(config: &Config) -> (DoctorFinding, DoctorFinding) {
    let image = &config.sandbox.image;
    let unknown = || DoctorFinding::Missing(format!("`{image}`: unknown without an engine"));
    let docker = match DockerDriver::connect(wiring::docker_options(&config.sandbox, "doctor")).await {
        Ok(docker) => docker,
        Err(e) => return (missing(e), unknown()),
    };
    if let Err(e) = docker.check().await {
        return (missing(e), unknown());
    }
    let image_finding = match docker.has_image(image).await {
        Ok(true) => DoctorFinding::Fine(format!("`{image}`")),
        Ok(false) => DoctorFinding::Missing(format!(
            "`{image}` is not present; the engine pulls it when a session first needs it"
        )),
        Err(e) => missing(e),
    };
    (DoctorFinding::Fine(docker.isolation()), image_finding)
}

async fn process(config: &Config) -> DoctorFinding {
    let checking = async {
        // The place of a server's sandboxes, because some file systems allow no programs
        // (`noexec`).
        let data = &config.data.dir;
        let state = if data.is_dir() { data.clone() } else { std::env::temp_dir() };
        let state = state.join(format!("doctor-{}", std::process::id()));
        let options = ProcessOptions {
            node: "doctor".to_owned(),
            state: state.clone(),
            programs: state.clone(),
            unconfined: config.sandbox.unconfined,
            engine: None,
        };
        let process = ProcessDriver::new(options).map_err(|e| e.to_string())?;
        let checked = process.check().await.map(|()| process.isolation()).map_err(|e| e.to_string());
        // A leftover directory does no harm.
        let _ = std::fs::remove_dir_all(state);
        checked
    };
    match checking.await {
        Ok(isolation) => DoctorFinding::Fine(isolation),
        Err(reason) => missing(reason),
    }
}

fn model(config: &Config) -> DoctorFinding {
    let gateway = match Gateway::new(wiring::gateway_options(&config.model)) {
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
