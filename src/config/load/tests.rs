use greenroom_protocol::{approval::ApprovalMode, link::ReasoningEffort};

use super::*;
use crate::config::{DriverChoice, RuleAction, SecretString, TlsFiles, TlsSetting, VolumeAccess};

/// Home directory with an optional user's file and an optional file of the data directory.
struct ConfigTestHome(tempfile::TempDir);

impl ConfigTestHome {
    fn new(user: &str, data: &str) -> ConfigTestHome {
        let home = tempfile::tempdir().expect("a temporary directory");
        for (dir, name, text) in [(".config", "config.toml", user), (".local/share", FILE_NAME, data)] {
            let dir = home.path().join(dir).join("greenroom");
            std::fs::create_dir_all(&dir).expect("the directory is created");
            std::fs::write(dir.join(name), text).expect("the file is written");
        }
        ConfigTestHome(home)
    }

    fn load(&self, variables: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Result<Config, String> {
        let mut environment: BTreeMap<_, _> = variables.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        environment.insert("HOME".into(), self.0.path().to_str().expect("the path is UTF-8").into());
        let flags = flags.iter().map(|(key, text)| (*key, "--flag", text.to_string())).collect();
        Config::load(&ConfigSources { file: None, environment, flags }).map_err(|e| e.to_string())
    }
}

#[test]
fn later_layers_win() {
    let port = |user, data, variables: &[_], flags: &[_]| {
        ConfigTestHome::new(user, data).load(variables, flags).expect("the configuration is valid").server.bind.port()
    };
    let (user, data) = ("server.bind = '127.0.0.1:1'", "[server]\nbind = '127.0.0.1:2'");
    let variable = [("GREENROOM_SERVER__BIND", "127.0.0.1:3")];
    let flag = [("server.bind", "127.0.0.1:4")];
    assert_eq!(port("", "", &[], &[]), 3000);
    assert_eq!(port(user, "", &[], &[]), 1);
    assert_eq!(port(user, data, &[], &[]), 2);
    assert_eq!(port(user, data, &variable, &[]), 3);
    assert_eq!(port(user, data, &variable, &flag), 4);
}

#[test]
fn config_flag_replaces_all_files() {
    let home = ConfigTestHome::new("server.workers = 7", "");
    let file = home.0.path().join("mine.toml");
    std::fs::write(&file, "agent.max_steps = 3").expect("the file is written");
    let environment =
        BTreeMap::from([("HOME".to_owned(), home.0.path().to_str().expect("the path is UTF-8").to_owned())]);
    let config = Config::load(&ConfigSources { file: Some(file), environment, flags: vec![] })
        .expect("the configuration is valid");
    assert_eq!((config.agent.max_steps, config.server.workers), (3, 0));
}

#[test]
fn well_known_variables_set_their_keys() {
    let config = ConfigTestHome::new("", "")
        .load(
            &[
                ("LLM_API_KEY", "k1"),
                ("LLM_MODEL", "m"),
                ("LLM_BASE_URL", "http://u"),
                ("ANTHROPIC_API_KEY", "k2"),
                ("OPENAI_API_KEY", "k3"),
                ("SANDBOX_VOLUMES", "/a:/b:rw, /c:/d:ro"),
                ("DOCKER_HOST", "unix:///x.sock"),
                ("GREENROOM_TOKEN", "0123456789abcdef"),
                ("RUST_LOG", "debug"),
                ("GREENROOM_MODEL__OPENAI__API_KEY", "k4"),
                ("GREENROOM_AGENT__MAX_STEPS", "9"),
                ("GREENROOM_SANDBOX__CPUS", "1.5"),
                ("GREENROOM_SANDBOX__UNCONFINED", "true"),
                ("GREENROOM_SERVER__ALLOWED_HOSTS", "[\"a.test\", \"b.test:1\"]"),
                ("GREENROOM_MODEL__EFFORT", "high"),
                ("GREENROOM_DATA__DIR", ""),
            ],
            &[("sandbox.driver", "process"), ("sandbox.stop_with_server", "true")],
        )
        .expect("the configuration is valid");
    assert_eq!(config.model.api_key, SecretString::new("k1"));
    assert_eq!((config.model.default.as_str(), config.model.base_url.as_str()), ("m", "http://u"));
    assert_eq!(config.model.effort, Some(ReasoningEffort::High));
    assert_eq!(config.model.anthropic.api_key, SecretString::new("k2"));
    assert_eq!(config.model.openai.api_key, SecretString::new("k4"), "the exact name wins over the well-known one");
    assert_eq!(
        config.sandbox.volumes.iter().map(|v| v.access).collect::<Vec<_>>(),
        [VolumeAccess::ReadWrite, VolumeAccess::ReadOnly]
    );
    assert_eq!((config.sandbox.driver, config.sandbox.docker_host.as_str()), (DriverChoice::Process, "unix:///x.sock"));
    assert_eq!((config.agent.max_steps, config.sandbox.limits.cpus), (9, 1.5));
    assert!(config.sandbox.unconfined && config.sandbox.stop_with_server);
    assert_eq!(config.server.allowed_hosts, ["a.test", "b.test:1"]);
    assert!(config.data.dir.ends_with(".local/share/greenroom"));
}

/// Checks that each error names the place, the key and the way out.
#[test]
fn errors_name_place_key_and_way_out() {
    fn check(data: &str, variables: &[(&str, &str)], parts: &[&str]) {
        let error = ConfigTestHome::new("", data).load(variables, &[]).expect_err("the configuration is rejected");
        for part in parts {
            assert!(error.contains(part), "`{part}` is missing in: {error}");
        }
    }
    check("[server]\n\nbnd = 'x'", &[], &["greenroom.toml` line 3", "`server.bnd`", "`allowed_hosts`", "`bind`"]);
    check("[sever]\nbind = 'x'", &[], &["line 1", "`sever`", "`server`", "`sandbox`"]);
    check("[server]\nbind = 'x'", &[], &["line 2", "`server.bind`", "\"x\" is invalid"]);
    check("server = 3", &[], &["line 1", "`server`", "has `allowed_hosts`"]);
    check("[server]\nbind.port = 3", &[], &["line 2", "`server.bind`", "expected socket address"]);
    check("[model]\neffort = 'huge'", &[], &["line 2", "`model.effort`", "`minimal`, `low`, `medium`, `high`"]);
    check("[agent]\nmax_steps = 0", &[], &["line 2", "`agent.max_steps`", "could take no step"]);
    check("[agent]\nmax_steps = 'many'", &[], &["`agent.max_steps`", "\"many\" is invalid"]);
    check("[sandbox]\ndriver = 'vm'", &[], &["`sandbox.driver`", "`auto`, `docker`, `process`"]);
    check("[sandbox]\nuid = 0", &[], &["`sandbox.uid`", "never run as root"]);
    for range in ["0-9", "9", "9-8", "a-b", "1-4294967295"] {
        check(&format!("[sandbox]\nuid_range = '{range}'"), &[], &["`sandbox.uid_range`", "200000-265535"]);
    }
    check("[sandbox]\nnetwork = 'host'", &[], &["`sandbox.network`", "no isolation"]);
    check("[sandbox]\nmemory = '2 apples'", &[], &["`sandbox.memory`", "apples"]);
    check("[model]\n[[model.prices]]\nmodle = 'x'", &[], &["line 2", "`model.prices`", "modle"]);
    check("[checkpoints]\nmax_time = \"0\"", &[], &["line 2", "`checkpoints.max_time`", "must be 1s to 1h"]);
    check("[files]\nmax_files = 0", &[], &["line 2", "`files.max_files`", "must be 1 to 1000"]);
    check("[files]\ndenied_types = ['exe']", &[], &["`files.denied_types", "such as `.exe`"]);
    check("[approvals]\nmode = 'yolo'", &[], &["line 2", "`approvals.mode`", "`plan`, `ask`, `edits`, `auto`"]);
    check("[approvals]\nanalyzer = 'x'", &[], &["`approvals.analyzer`", "`none`, `rules` or `http`"]);
    check("[approvals.http]\ntimeout = 0", &[], &["`approvals.http.timeout`", "must be more than 0"]);
    check("[[approvals.rules]]\npath = '['\naction = 'ask'", &[], &["line 1", "`approvals.rules`", "must be a glob"]);
    check("[[approvals.rules]]\npath = 'x'", &[], &["`approvals.rules`", "missing field `action`"]);
    check("[log]\nlevel = 'loud,,='", &[], &["`log.level`", "error, warn, info"]);
    check("[server]\nallowed_origins = ['https://a.test/']", &[], &["`server.allowed_origins`", "without a path"]);
    check("[server]\nbase_path = 'x'", &[], &["line 2", "`server.base_path`", "must begin with `/`"]);
    check(
        "[server]\ntrusted_proxies = ['x']",
        &[],
        &["`server.trusted_proxies`", "`x` must be an IP address or a network"],
    );
    check("[server]\ntls = 'on'", &[], &["`server.tls`", "must be `off`, or `{ cert"]);
    check("[server.tls]\ncert = 'c'", &[], &["line 1", "`server.tls`", "must be `off`, or `{ cert"]);
    check("[server]\nopen_monitoring = 'yes'", &[], &["`server.open_monitoring`", "\"yes\" is invalid"]);
    check("[server\n", &[], &["greenroom.toml` line 1 is not valid TOML"]);
    check("[data]\ndir = '/elsewhere'", &[], &["`data.dir`", "the file in the data directory"]);
    check("", &[("GREENROOM_SERVER__BOND", "1")], &["variable `GREENROOM_SERVER__BOND`", "`server.bond`", "`bind`"]);
    check("", &[("GREENROOM_SERVER_BIND", "1")], &["`GREENROOM_SERVER_BIND`", "use `GREENROOM_SERVER__BIND`"]);
    check("", &[("GREENROOM_AGENT__MAX_STEPS", "x")], &["`agent.max_steps`", "\"x\" is invalid"]);
    check("", &[("SANDBOX_VOLUMES", "/a")], &["variable `SANDBOX_VOLUMES`", "volume `/a` must"]);
}

#[test]
fn tls_table_of_a_file_yields_to_a_variable() {
    let home = ConfigTestHome::new("[server.tls]\ncert = '/c'\nkey = '/k'", "[server.tls]\nkey = '/l'");
    let tls = |variables: &[_]| home.load(variables, &[]).expect("the configuration is valid").server.tls;
    assert_eq!(tls(&[]), TlsSetting::Files(TlsFiles { cert: "/c".into(), key: "/l".into() }));
    assert_eq!(tls(&[("GREENROOM_SERVER__TLS", "off")]), TlsSetting::Off);
}

#[test]
fn approvals_are_set_by_files_and_variables() {
    let rule = "[approvals]\ntimeout = '10min'\n[approvals.http]\nurl = 'http://127.0.0.1:1/a'\n\
                [[approvals.rules]]\ncommand = 'git push*'\naction = 'deny'\nreason = 'reviews first'";
    let variables = [("GREENROOM_APPROVALS__MODE", "edits"), ("GREENROOM_APPROVALS__LOOPS__SAME_CALL", "4")];
    let approvals = ConfigTestHome::new("", rule).load(&variables, &[]).expect("the configuration is valid").approvals;
    assert_eq!((approvals.mode, approvals.analyzer.as_str()), (Some(ApprovalMode::Edits), "rules"));
    assert_eq!((approvals.timeout.whole_seconds(), approvals.loops.same_call), (600, 4));
    assert_eq!(approvals.http.url, "http://127.0.0.1:1/a");
    let [rule] = &approvals.rules[..] else { panic!("{:?}", approvals.rules) };
    assert_eq!((rule.command.as_deref(), rule.action), (Some("git push*"), RuleAction::Deny));
    assert_eq!(Config::with_data_dir("/x").approvals.mode, None);
}

#[test]
fn rejected_secret_is_not_repeated() {
    let error =
        ConfigTestHome::new("", "").load(&[("GREENROOM_TOKEN", "canary")], &[]).expect_err("the token is too short");
    assert!(error.contains("`GREENROOM_TOKEN`") && !error.contains("canary"), "{error}");
}

#[test]
fn price_row_replaces_the_row_of_its_model() {
    let before = Config::with_data_dir("/x").model.prices.len();
    let rows = "[[model.prices]]\nmodel = 'gpt-5'\ninput = 9\noutput = 9\n[[model.prices]]\nmodel = 'own'\ninput = 1\noutput = 1";
    let prices = ConfigTestHome::new("", rows).load(&[], &[]).expect("the configuration is valid").model.prices;
    assert_eq!(prices.len(), before + 1);
    let gpt: Vec<_> = prices.iter().filter(|row| row.model == "gpt-5").map(|row| row.input).collect();
    assert_eq!(gpt, [9.0]);
}

#[test]
fn prices_file_replaces_defaults_and_own_rows_win() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = dir.path().join("prices.toml");
    let newer = "[model]\nprices_as_of = '2030-01'\n[[model.prices]]\nmodel = 'gpt-5'\ninput = 7\noutput = 7\n\
                 [[model.prices]]\nmodel = 'o3'\ninput = 7\noutput = 7\n";
    std::fs::write(&file, newer).expect("the directory is writable");
    let own =
        format!("[model]\nprices_file = '{}'\n[[model.prices]]\nmodel = 'o3'\ninput = 9\noutput = 9", file.display());
    let model = ConfigTestHome::new("", &own).load(&[], &[]).expect("the configuration is valid").model;
    let input =
        |name: &str| model.prices.iter().filter(|row| row.model == name).map(|row| row.input).collect::<Vec<_>>();
    assert_eq!((input("gpt-5"), input("o3"), input("gpt-4o")), (vec![7.0], vec![9.0], vec![2.5]));
    assert_eq!(model.prices_as_of, "2030-01");

    std::fs::write(&file, "[[model.prices]]\nmodel = 'gpt-5'\ninput = 'free'\noutput = 1")
        .expect("the directory is writable");
    let error = ConfigTestHome::new("", &own).load(&[], &[]).expect_err("a price is no number");
    assert!(error.contains("`model.prices_file`") && error.contains("prices.toml` line 3"), "{error}");
    std::fs::remove_file(&file).expect("the file exists");
    let error = ConfigTestHome::new("", &own).load(&[], &[]).expect_err("the file is missing");
    assert!(error.contains("`model.prices_file`: cannot read"), "{error}");
}

#[test]
fn budgets_are_amounts_or_empty() {
    let budget = |text: &str| ConfigTestHome::new("", text).load(&[("GREENROOM_BUDGET__TOTAL", "7.5")], &[]);
    let read = budget("[budget]\nper_session = 2\nper_day = ''").expect("the configuration is valid").budget;
    assert_eq!((read.per_session.0, read.per_day.0, read.total.0), (Some(2.0), None, Some(7.5)));
    for wrong in ["0", "-1", "'much'", "nan"] {
        let error = budget(&format!("[budget]\nper_day = {wrong}")).expect_err("the limit is invalid");
        assert!(error.contains("`budget.per_day`") && error.contains("above 0"), "{error}");
    }
}

#[test]
fn missing_home_names_the_data_flag() {
    let error = Config::load(&ConfigSources::default()).expect_err("there is no home").to_string();
    assert!(error.contains("--data DIR"), "{error}");
}

#[test]
fn missing_file_is_named() {
    let sources = ConfigSources { file: Some("/nowhere/x.toml".into()), ..ConfigSources::default() };
    assert!(Config::load(&sources).expect_err("the file is missing").to_string().contains("`/nowhere/x.toml`"));
}

#[test]
fn defaults_are_valid_and_each_is_documented() {
    assert_eq!(MergedLayers::defaults().config.invalid_value(), None);
    let settings = DEFAULTS.split("[[model.prices]]").next().expect("`split` yields at least one part");
    let mut explained = false;
    for line in settings.lines() {
        explained = match line {
            "" => false,
            line if line.starts_with('#') => true,
            line if line.starts_with('[') => explained,
            line => {
                assert!(explained, "`{line}` has no comment");
                true
            }
        };
    }
}
