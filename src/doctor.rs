//! `greenroom doctor`: what this machine offers, and what to do about what is missing.

use std::{
    fmt::Display,
    io::{self, Write},
};

use crate::{
    config::{Config, Driver},
    data::DataDir,
    gateway::Gateway,
    sandbox::{
        Docker, Sandbox,
        process::{Process, ProcessOptions},
    },
    store::local::LocalStore,
    wiring,
};

/// One line of the report.
enum Finding {
    Fine(String),
    /// Not there, and not needed for the main job.
    Missing(String),
    /// Greenroom cannot serve like this.
    Wrong(String),
}

impl Finding {
    /// Where it is not there, a server cannot start.
    fn needed(self) -> Finding {
        match self {
            Finding::Missing(why) => Finding::Wrong(why),
            other => other,
        }
    }
}

/// Looks at everything that a server needs, and says on stdout how it is. `Err` where it could not serve.
pub async fn examine(config: Config) -> Result<(), String> {
    let data = data(&config);
    let (docker, image) = docker(&config).await;
    let process = process(&config).await;
    let no_wall = !matches!(docker, Finding::Fine(_)) && !matches!(process, Finding::Fine(_));
    // The one that is named has no other in its place.
    let (docker, process) = match config.sandbox.driver {
        Driver::Docker => (docker.needed(), process),
        Driver::Process => (docker, process.needed()),
        Driver::Auto => (docker, process),
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
            Finding::Fine(text) => ("ok", text),
            Finding::Missing(text) => ("--", text),
            Finding::Wrong(text) => ("!!", text),
        };
        // A reader that has gone has seen what it wanted to.
        let _ = writeln!(io::stdout(), "{mark}  {what:<16} {text}");
    }
    if no_wall {
        return Err(
            "there is neither a Docker engine nor a kernel that confines, so no sandbox can be started".to_owned()
        );
    }
    match report.iter().filter(|(_, finding)| matches!(finding, Finding::Wrong(_))).count() {
        0 => Ok(()),
        n => Err(format!("{n} thing(s) above need attention before a server can start")),
    }
}

fn data(config: &Config) -> Finding {
    let path = config.data.dir.display();
    match DataDir::open(&config.data.dir) {
        Err(e) => wrong(e),
        Ok(data) => match LocalStore::open(&data.journal()) {
            Ok(_) => match wiring::keep_out_of(&wiring::volumes(&config.sandbox), data.path()) {
                Ok(()) => Finding::Fine(format!("`{path}`")),
                Err(e) => wrong(e),
            },
            Err(e) => wrong(e),
        },
    }
}

/// The engine, and the image that sessions run in unless they name one.
async fn docker(config: &Config) -> (Finding, Finding) {
    let image = &config.sandbox.image;
    let unknown = || Finding::Missing(format!("`{image}`: there is no engine to ask"));
    let docker = match Docker::connect(wiring::docker_options(&config.sandbox, "doctor")).await {
        Ok(docker) => docker,
        Err(e) => return (missing(e), unknown()),
    };
    if let Err(e) = docker.check().await {
        return (missing(e), unknown());
    }
    let there = match docker.has_image(image).await {
        Ok(true) => Finding::Fine(format!("`{image}`")),
        Ok(false) => Finding::Missing(format!("`{image}` is not here yet; it is pulled when it is first needed")),
        Err(e) => missing(e),
    };
    (Finding::Fine(docker.isolation()), there)
}

async fn process(config: &Config) -> Finding {
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
        let process = Process::new(options).map_err(|e| e.to_string())?;
        let checked = process.check().await.map(|()| process.isolation()).map_err(|e| e.to_string());
        // A leftover harms nobody.
        let _ = std::fs::remove_dir_all(state);
        checked
    };
    match tried.await {
        Ok(isolation) => Finding::Fine(isolation),
        Err(why) => missing(why),
    }
}

fn model(config: &Config) -> Finding {
    let gateway = match Gateway::new(wiring::gateway_options(&config.model)) {
        Ok(gateway) => gateway,
        Err(e) => return wrong(e),
    };
    let model = gateway.default_model();
    match gateway.ready(&model) {
        Ok(()) if gateway.resolve(&model).demo => Finding::Missing(
            "no key is set, so sessions get the scripted `demo`; set LLM_API_KEY and LLM_MODEL".to_owned(),
        ),
        Ok(()) => Finding::Fine(format!("`{model}`")),
        Err(e) => wrong(e),
    }
}

fn missing(why: impl Display) -> Finding {
    Finding::Missing(why.to_string())
}

fn wrong(why: impl Display) -> Finding {
    Finding::Wrong(why.to_string())
}
