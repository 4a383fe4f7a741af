//! `greenroom doctor`: what this machine offers, and what to do about what is missing.

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
    store::local::LocalStore,
    wiring,
};

/// One line of the report.
enum DoctorFinding {
    Fine(String),
    /// Not there, and not needed for the main job.
    Missing(String),
    /// Greenroom cannot serve like this.
    Wrong(String),
}

impl DoctorFinding {
    /// Where it is not there, a server cannot start.
    fn required(self) -> DoctorFinding {
        match self {
            DoctorFinding::Missing(why) => DoctorFinding::Wrong(why),
            other => other,
        }
    }
}

/// Looks at everything that a server needs, and says on stdout how it is. `Err` where it could not serve.
pub async fn examine(config: Config) -> Result<(), String> {
    let data = data(&config);
    let (docker, image) = docker(&config).await;
    let process = process(&config).await;
    let no_wall = !matches!(docker, DoctorFinding::Fine(_)) && !matches!(process, DoctorFinding::Fine(_));
    // The one that is named has no other in its place.
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
    for (what, finding) in &report {
        let (mark, text) = match finding {
            DoctorFinding::Fine(text) => ("ok", text),
            DoctorFinding::Missing(text) => ("--", text),
            DoctorFinding::Wrong(text) => ("!!", text),
        };
        // A reader that has gone has seen what it wanted to.
        let _ = writeln!(io::stdout(), "{mark}  {what:<16} {text}");
    }
    if no_wall {
        return Err(
            "there is neither a Docker engine nor a kernel that confines, so no sandbox can be started".to_owned()
        );
    }
    match report.iter().filter(|(_, finding)| matches!(finding, DoctorFinding::Wrong(_))).count() {
        0 => Ok(()),
        n => Err(format!("{n} thing(s) above need attention before a server can start")),
    }
}

fn data(config: &Config) -> DoctorFinding {
    let path = config.data.dir.display();
    match DataDir::open(&config.data.dir) {
        Err(e) => wrong(e),
        Ok(data) => match LocalStore::open(&data.journal()) {
            Ok(_) => match wiring::check_volumes_exclude(&wiring::volumes(&config.sandbox), data.path()) {
                Ok(()) => DoctorFinding::Fine(format!("`{path}`")),
                Err(e) => wrong(e),
            },
            Err(e) => wrong(e),
        },
    }
}

/// The engine, and the image that sessions run in unless they name one.
async fn docker(config: &Config) -> (DoctorFinding, DoctorFinding) {
    let image = &config.sandbox.image;
    let unknown = || DoctorFinding::Missing(format!("`{image}`: there is no engine to ask"));
    let docker = match DockerDriver::connect(wiring::docker_options(&config.sandbox, "doctor")).await {
        Ok(docker) => docker,
        Err(e) => return (missing(e), unknown()),
    };
    if let Err(e) = docker.check().await {
        return (missing(e), unknown());
    }
    let there = match docker.has_image(image).await {
        Ok(true) => DoctorFinding::Fine(format!("`{image}`")),
        Ok(false) => DoctorFinding::Missing(format!("`{image}` is not here yet; it is pulled when it is first needed")),
        Err(e) => missing(e),
    };
    (DoctorFinding::Fine(docker.isolation()), there)
}

async fn process(config: &Config) -> DoctorFinding {
    let tried = async {
        // Where a server's sandboxes are too: from some places no program can be run (`noexec`).
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
        // A leftover harms nobody.
        let _ = std::fs::remove_dir_all(state);
        checked
    };
    match tried.await {
        Ok(isolation) => DoctorFinding::Fine(isolation),
        Err(why) => missing(why),
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
            "no key is set, so sessions get the scripted `demo`; set LLM_API_KEY and LLM_MODEL".to_owned(),
        ),
        Ok(()) => DoctorFinding::Fine(format!("`{model}`")),
        Err(e) => wrong(e),
    }
}

fn missing(why: impl Display) -> DoctorFinding {
    DoctorFinding::Missing(why.to_string())
}

fn wrong(why: impl Display) -> DoctorFinding {
    DoctorFinding::Wrong(why.to_string())
}
