use super::*;
use crate::{config::SecretString, gateway::tests::no_provider};

#[test]
fn model_names_select_provider_and_model() {
    fn check(name: &str, api: ProviderApi, model: &str, demo: bool) {
        assert_eq!(resolve(name), ResolvedModel { api, model: model.to_owned(), demo }, "{name}");
    }
    check("claude-sonnet-4-5", ProviderApi::Anthropic, "claude-sonnet-4-5", false);
    check("anthropic/claude-sonnet-4-5", ProviderApi::Anthropic, "claude-sonnet-4-5", false);
    check("openai/gpt-5", ProviderApi::Openai, "gpt-5", false);
    check("openai/anthropic/claude-x", ProviderApi::Openai, "anthropic/claude-x", false);
    check("gpt-5", ProviderApi::Openai, "gpt-5", false);
    check("qwen/qwen3", ProviderApi::Openai, "qwen/qwen3", false);
    check("gemini-2.5-pro", ProviderApi::Gemini, "gemini-2.5-pro", false);
    check("gemini/learnlm", ProviderApi::Gemini, "learnlm", false);
    check("openai/gemini-2.5-pro", ProviderApi::Openai, "gemini-2.5-pro", false);
    check("demo", ProviderApi::Anthropic, "demo", true);
    check("openai/demo", ProviderApi::Openai, "demo", false);
}

#[test]
fn base_url_and_path_are_joined() {
    fn check(api: ProviderApi, base: &str, expected: &str) {
        let path = match api {
            ProviderApi::Anthropic => "/v1/messages",
            ProviderApi::Openai => "/v1/chat/completions",
            ProviderApi::Gemini => "/v1beta/models",
        };
        assert_eq!(upstream_url(api, base, path), expected);
    }
    check(ProviderApi::Anthropic, "", "https://api.anthropic.com/v1/messages");
    check(ProviderApi::Anthropic, "http://h:1/v1", "http://h:1/v1/messages");
    check(ProviderApi::Anthropic, "http://h/proxy", "http://h/proxy/v1/messages");
    check(ProviderApi::Openai, "", "https://api.openai.com/v1/chat/completions");
    check(ProviderApi::Openai, "http://h:8000", "http://h:8000/v1/chat/completions");
    check(ProviderApi::Openai, "http://h/v1beta/openai/", "http://h/v1beta/openai/chat/completions");
}

fn options(anthropic_key: bool, default_model: &str) -> ModelConfig {
    let mut options = ModelConfig {
        default: default_model.to_owned(),
        models: vec!["gpt-5".into(), "claude-x".into()],
        ..no_provider()
    };
    options.anthropic.api_key = SecretString::new(if anthropic_key { "k" } else { "" });
    options
}

#[test]
fn default_model_is_usable() {
    fn check(options: ModelConfig, expected: &str) {
        assert_eq!(options.default_choice(), expected);
    }
    check(options(false, "claude-y"), "demo");
    check(options(false, ""), "demo");
    check(options(true, ""), "claude-x");
    check(options(true, "claude-y"), "claude-y");
    check(options(true, "gpt-5"), "gpt-5");
}

#[test]
fn model_without_key_names_the_variable() {
    let error = options(true, "").ready("gpt-5").expect_err("there is no key");
    assert!(error.to_string().contains("`gpt-5`"), "{error}");
    assert!(error.to_string().contains("`OPENAI_API_KEY`"), "{error}");
    assert!(options(true, "").ready("claude-x").is_ok());
    let needs: Vec<_> = options(true, "").choices().into_iter().map(|choice| (choice.name, choice.needs)).collect();
    assert_eq!(needs, [("gpt-5".into(), Some("OPENAI_API_KEY")), ("claude-x".into(), None), ("demo".into(), None)]);
    assert!(options(false, "").ready("demo").is_ok());
    let mut own_server = options(false, "");
    own_server.openai.base_url = "http://127.0.0.1:11434/v1".into();
    assert!(own_server.ready("gpt-5").is_ok());
    assert_eq!(own_server.upstream_name(ProviderApi::Openai, "openai/gpt-oss"), "openai/gpt-oss");
    assert_eq!(options(true, "").upstream_name(ProviderApi::Openai, "openai/gpt-5"), "gpt-5");
}

#[test]
fn longest_matching_price_wins() {
    let price = |model: &str, input| PriceConfig {
        model: model.into(),
        input,
        output: 10.0,
        cache_read: Some(0.5),
        cache_write: Some(2.0),
        context_limit: Some(200_000),
        ..PriceConfig::default()
    };
    let options = ModelConfig {
        prices: vec![price("claude-*", 1.0), price("claude-big*", 4.0), price("claude-*x", 9.0)],
        ..no_provider()
    };
    let check = |model: &str, requested_model: &str, expected: Option<f64>| {
        let mut metered = MeteredUsage {
            model: model.into(),
            input_tokens: 1_000_000,
            output_tokens: 100_000,
            cache_read_tokens: 2_000_000,
            cache_write_tokens: 500_000,
            ..MeteredUsage::default()
        };
        options.apply_price(ProviderApi::Anthropic, &mut metered, requested_model);
        assert_eq!(metered.cost_usd, expected, "{model}");
    };
    check("claude-big-2", "", Some(4.0 + 1.0 + 1.0 + 1.0));
    check("claude-small", "", Some(1.0 + 1.0 + 1.0 + 1.0));
    check("its-own-alias", "claude-small", Some(4.0));
    check("gpt-5", "gpt-5", None);
    check("demo", "demo", Some(0.0));

    let mut estimate =
        MeteredUsage { model: "claude-x".into(), input_tokens: 9_000_000, estimated: true, ..MeteredUsage::default() };
    options.apply_price(ProviderApi::Anthropic, &mut estimate, "");
    assert_eq!((estimate.input_tokens, estimate.cost_usd), (200_000, Some(0.2)));
    let mut estimate =
        MeteredUsage { model: "claude-x".into(), output_tokens: 9_000_000, estimated: true, ..MeteredUsage::default() };
    options.apply_price(ProviderApi::Anthropic, &mut estimate, "");
    assert_eq!((estimate.output_tokens, estimate.cost_usd), (200_000, Some(2.0)));
}

#[test]
fn each_model_is_offered_once() {
    let names: Vec<String> = options(true, "claude-x").choices().into_iter().map(|choice| choice.name).collect();
    assert_eq!(names, ["claude-x", "gpt-5", "demo"]);
}

fn models(names: &[&str], small: Option<&str>, foreign: ForeignModels) -> SessionModels {
    SessionModels {
        names: names.iter().map(|&name| name.to_owned()).collect(),
        small: small.map(str::to_owned),
        foreign,
    }
}

#[test]
fn foreign_models_are_mapped_refused_or_passed() {
    let options = options(true, "");
    let check = |route, requested: &str, models: &SessionModels, expected: Option<&str>| {
        assert_eq!(options.admit(route, requested, models).ok().as_deref(), expected, "{requested}");
    };
    let (anthropic, openai, gemini) = (GatewayRoute::Messages, GatewayRoute::Chat, GatewayRoute::GeminiStream);
    let names = ["claude-x", "claude-haiku-9", "openai/gpt-5"];
    let map = models(&names, Some("claude-haiku-9"), ForeignModels::Map);
    check(anthropic, "claude-x", &map, Some("claude-x"));
    check(anthropic, "anthropic/claude-x", &map, Some("claude-x"));
    check(anthropic, "claude-opus-5-5", &map, Some("claude-x"));
    check(anthropic, "claude-3-5-haiku-latest", &map, Some("claude-haiku-9"));
    check(openai, "gpt-9", &map, Some("gpt-5"));
    // The small model belongs to another API.
    check(openai, "gpt-9-mini", &map, Some("gpt-5"));
    let no_small = models(&["claude-x"], None, ForeignModels::Map);
    check(anthropic, "claude-haiku-4-5", &no_small, Some("claude-x"));
    check(openai, "gpt-9", &no_small, None);
    let demo = models(&["demo"], None, ForeignModels::Map);
    check(openai, "gpt-9", &demo, Some("demo"));
    let google = models(&["gemini/gemini-x", "gemini-flash-9"], Some("gemini-flash-9"), ForeignModels::Map);
    check(gemini, "gemini-9-pro", &google, Some("gemini-x"));
    check(gemini, "gemini-9-flash-lite", &google, Some("gemini-flash-9"));
    check(anthropic, "claude-x", &google, None);
    // No model of a conversation makes embeddings.
    check(GatewayRoute::Embeddings, "text-embedding-3-small", &map, None);
    check(GatewayRoute::Embeddings, "openai/gpt-5", &map, Some("gpt-5"));
    let refuse = models(&names, None, ForeignModels::Refuse);
    check(anthropic, "claude-haiku-9", &refuse, Some("claude-haiku-9"));
    check(anthropic, "claude-opus-5-5", &refuse, None);
    let reason = options.admit(anthropic, "claude-opus-5-5", &refuse).expect_err("a foreign name");
    assert!(reason.contains("`claude-opus-5-5`; its models are `claude-x`, `claude-haiku-9`"), "{reason}");
    check(anthropic, "any", &SessionModels::any(), Some("any"));
}

#[test]
fn small_models_are_recognised_by_words() {
    for (model, expected) in [
        ("gpt-5-mini", true),
        ("o4-mini-2025", true),
        ("gemini-2.5-pro", false),
        ("gemini-2.5-flash", true),
        ("x", false),
    ] {
        assert_eq!(is_small(model), expected, "{model}");
    }
}

#[test]
fn model_list_has_the_permitted_models_of_the_api() {
    let options = options(true, "");
    let names = models(&["claude-x", "gpt-5", "demo"], None, ForeignModels::Map);
    assert_eq!(options.permitted(ProviderApi::Anthropic, &names), Some(vec!["claude-x", "demo"]));
    assert_eq!(options.permitted(ProviderApi::Openai, &names), Some(vec!["gpt-5", "demo"]));
    assert_eq!(options.permitted(ProviderApi::Openai, &SessionModels::any()), None);
}

#[test]
fn models_of_a_loopback_address_are_free_unless_a_row_has_their_price() {
    let check = |url: &str, model: &str, expected: Option<f64>| {
        let mut options = ModelConfig {
            prices: vec![PriceConfig { model: "priced".into(), input: 3.0, ..PriceConfig::default() }],
            ..no_provider()
        };
        options.openai.base_url = url.to_owned();
        let price = options.price_of(ProviderApi::Openai, model).map(|price| price.input);
        assert_eq!(price, expected, "{url} {model}");
    };
    check("http://127.0.0.1:11434/v1", "qwen", Some(0.0));
    check("http://[::1]:1/v1", "qwen", Some(0.0));
    check("http://localhost:1/v1", "qwen", Some(0.0));
    check("http://127.0.0.1:1", "priced", Some(3.0));
    check("http://127.0.0.1:1", "openai/priced", Some(3.0));
    check("https://router.example/v1", "provider/region/priced", Some(3.0));
    check("https://router.example/v1", "priced/qwen", None);
    check("http://127.0.0.1.evil.example/v1", "qwen", None);
    check("https://localhost.example/v1", "qwen", None);
    check("http://192.168.0.7/v1", "qwen", None);
    check("", "qwen", None);
}

#[test]
fn cache_writes_server_tools_and_unknown_tokens_have_a_price() {
    let row = PriceConfig { model: "m".into(), input: 1.0, output: 10.0, ..PriceConfig::default() };
    let options = ModelConfig {
        prices: vec![row],
        server_tool_prices: [("web_search_requests".to_owned(), 0.01), ("dear".to_owned(), 0.05)].into(),
        ..no_provider()
    };
    let check = |used: MeteredUsage, expected: f64| {
        let mut metered = MeteredUsage { model: "m".into(), ..used };
        options.apply_price(ProviderApi::Anthropic, &mut metered, "");
        let cost = metered.cost_usd.expect("the model has a price");
        assert!((cost - expected).abs() < 1e-9, "{metered:?}");
    };
    check(MeteredUsage { cache_write_tokens: 1_000_000, ..MeteredUsage::default() }, 1.25);
    check(MeteredUsage { cache_write_1h_tokens: 1_000_000, ..MeteredUsage::default() }, 2.0);
    check(MeteredUsage { unknown_tokens: 1_000_000, ..MeteredUsage::default() }, 10.0);
    let uses = |name: &str| MeteredUsage { server_tool_uses: vec![(name.to_owned(), 2)], ..MeteredUsage::default() };
    check(uses("web_search_requests"), 0.02);
    check(uses("unheard_of"), 0.1);
}

#[test]
fn absent_limit_goes_into_the_field_that_the_service_reads() {
    let mut options = no_provider();
    assert_eq!(options.output_limit_field(GatewayRoute::Chat), Some("max_completion_tokens"));
    assert_eq!(options.output_limit_field(GatewayRoute::Messages), Some("max_tokens"));
    assert_eq!(options.output_limit_field(GatewayRoute::Responses), Some("max_output_tokens"));
    options.openai.base_url = "http://127.0.0.1:1/v1".into();
    assert_eq!(options.output_limit_field(GatewayRoute::Chat), Some("max_tokens"));
    assert_eq!(options.output_limit_field(GatewayRoute::GeminiStream), Some("maxOutputTokens"));
    assert_eq!(options.output_limit_field(GatewayRoute::CompactResponses), None);
}

#[test]
fn price_row_states_what_a_model_takes() {
    let defaults = crate::config::Config::with_data_dir("/x").model;
    let takes = |context_limit, takes_images| ModelCapabilities { context_limit, takes_images };
    assert_eq!(defaults.capabilities("claude-sonnet-4-5"), takes(Some(200_000), true));
    assert_eq!(defaults.capabilities("anthropic/claude-sonnet-4-5"), takes(Some(200_000), true));
    assert_eq!(defaults.capabilities("openai/gpt-5"), takes(Some(400_000), true));
    assert_eq!(defaults.capabilities("llama"), ModelCapabilities::default());
    assert_eq!(defaults.capabilities("demo"), takes(Some(DEMO_CONTEXT), false));
    let offered = |name: &str| defaults.choices().into_iter().find(|choice| choice.name == name).expect(name);
    assert!(offered("gpt-5").takes_images && !offered("demo").takes_images);
}

#[test]
fn long_input_has_its_own_price() {
    let long = LongPriceConfig { above: 200_000, input: 2.0, output: 20.0, cache_read: 0.2 };
    let row = PriceConfig { model: "m".into(), input: 1.0, output: 10.0, long: Some(long), ..PriceConfig::default() };
    let options = ModelConfig { prices: vec![row], ..no_provider() };
    for (input, cached, expected) in
        [(200_000, 0, 0.2 + 0.01), (200_001, 0, 0.400_002 + 0.02), (1, 200_000, 0.040_002 + 0.02)]
    {
        let mut metered = MeteredUsage {
            model: "m".into(),
            input_tokens: input,
            cache_read_tokens: cached,
            output_tokens: 1_000,
            ..MeteredUsage::default()
        };
        options.apply_price(ProviderApi::Gemini, &mut metered, "");
        let cost = metered.cost_usd.expect("the model has a price");
        assert!((cost - expected).abs() < 1e-9, "{input} {cached}: {cost}");
    }
}

/// A client may name any model, and each label of a metric costs memory.
#[test]
fn metric_labels_are_bounded() {
    let listed = ["claude-a", "openai/gpt-b", "openai/org/c", "gemini/g"].map(str::to_owned).to_vec();
    let options = ModelConfig { models: listed, default: "claude-d".to_owned(), ..no_provider() };
    let check = |api: ProviderApi, model: &str, expected: (&str, &str)| {
        let (provider, label) = options.metric_labels(api, model);
        assert_eq!((provider, label.as_str()), expected, "{model}");
    };
    check(ProviderApi::Anthropic, "claude-a", ("anthropic", "claude-a"));
    check(ProviderApi::Anthropic, "claude-d", ("anthropic", "claude-d"));
    check(ProviderApi::Openai, "gpt-b", ("openai", "gpt-b"));
    check(ProviderApi::Openai, "org/c", ("openai", "org/c"));
    check(ProviderApi::Gemini, "g", ("gemini", "g"));
    check(ProviderApi::Anthropic, "demo", ("demo", "demo"));
    for foreign in ["claude-x", "gpt-b", "", "other"] {
        check(ProviderApi::Anthropic, foreign, ("anthropic", "other"));
    }
    check(ProviderApi::Gemini, "claude-a", ("gemini", "other"));
}
