use super::*;
use crate::config::GatewayPermission::{Beta, ProviderTools, RemoteContent, ServiceTier};

/// Checks the body that passes, and the removed parts. All white space and the order stay.
fn check(route: GatewayRoute, allow: &[GatewayPermission], body: &str, expected: &str, removed: &[&str]) {
    let filtered = filter(route, &AllowList::new(allow), Bytes::copy_from_slice(body.as_bytes()));
    let filtered = filtered.expect("the body is an object");
    assert_eq!(String::from_utf8_lossy(&filtered.body), expected);
    assert_eq!(filtered.removed, removed, "{body}");
}

fn check_kept(route: GatewayRoute, allow: &[GatewayPermission], body: &str) {
    check(route, allow, body, body, &[]);
}

#[test]
fn unlisted_fields_are_cut_out_and_nothing_else_changes() {
    let cut =
        |body: &str, expected: &str, removed: &[&str]| check(GatewayRoute::Messages, &[], body, expected, removed);
    check_kept(GatewayRoute::Messages, &[], r#" { "model" : "m" , "max_tokens": 1.0e3 } "#);
    cut(r#"{"x":1,"model":"m"}"#, r#"{"model":"m"}"#, &["the field `x`"]);
    cut(r#"{ "x" : [1, 2] , "y": {} , "model" : "m" }"#, r#"{ "model" : "m" }"#, &["the field `x`", "the field `y`"]);
    cut(
        r#"{"model":"m" , "x" : "," , "stream":true,"y":null}"#,
        r#"{"model":"m" , "stream":true}"#,
        &["the field `x`", "the field `y`"],
    );
    cut(r#"{"x":1}"#, "{}", &["the field `x`"]);
    cut(r#"{"model":"m","speed\u0000":1}"#, r#"{"model":"m"}"#, &["the field `speed`"]);
    cut(r#"{"model":"m","mcp\u005fservers":[],"mcp_servers":[]}"#, r#"{"model":"m"}"#, &["the field `mcp_servers`"]);
    assert!(filter(GatewayRoute::Chat, &AllowList::default(), "[]".into()).is_err_and(|e| e.contains("JSON object")));
}

#[test]
fn fields_pass_with_their_permission() {
    let body = r#"{"model":"m","mcp_servers":[],"service_tier":"priority","context_management":{}}"#;
    check_kept(GatewayRoute::Messages, &[ProviderTools, ServiceTier, Beta], body);
    let removed = ["the field `context_management`", "the field `mcp_servers`"];
    check(GatewayRoute::Messages, &[ServiceTier], body, r#"{"model":"m","service_tier":"priority"}"#, &removed);
    check_kept(GatewayRoute::GeminiStream, &[RemoteContent], r#"{"contents":[],"cachedContent":"c"}"#);
    check(
        GatewayRoute::GeminiStream,
        &[],
        r#"{"contents":[],"cachedContent":"c"}"#,
        r#"{"contents":[]}"#,
        &["the field `cachedContent`"],
    );
    check(
        GatewayRoute::Chat,
        &[],
        r#"{"model":"m","web_search_options":{}}"#,
        r#"{"model":"m"}"#,
        &["the field `web_search_options`"],
    );
}

#[test]
fn provider_side_tools_are_cut_out() {
    let custom = r#"{"name":"run","input_schema":{"properties":{"url":{}}}}"#;
    let body = |tools: &str, rest: &str| format!(r#"{{"model":"m","tools":[{tools}]{rest}}}"#);
    let search = r#"{"type":"web_search_20250305","name":"web_search"}"#;
    let removed = ["the tool `web_search_20250305`", "the tool `web_search`"];
    let cut = |tools: &str, rest: &str, expected: &str| {
        check(GatewayRoute::Messages, &[], &body(tools, rest), expected, &removed)
    };
    cut(&format!("{search}, {custom}"), "", &body(&format!(" {custom}"), ""));
    cut(&format!("{custom} ,{search}"), "", &body(custom, ""));
    cut(search, r#","tool_choice":{"type":"auto"},"stream":true"#, r#"{"model":"m","stream":true}"#);
    let choice = r#","tool_choice":{"type":"tool","name":"web_search"}"#;
    cut(&format!("{custom},{search}"), choice, &body(custom, ""));
    check_kept(GatewayRoute::Messages, &[ProviderTools], &body(search, ""));
    check_kept(GatewayRoute::Messages, &[], &body(r#"{"type":"bash_20250124","name":"bash"}"#, ""));
    let twice = r#"{"type":"custom","type":"web_fetch_20250910","name":"f"}"#;
    let removed = ["the tool `custom`", "the tool `f`", "the tool `web_fetch_20250910`"];
    check(GatewayRoute::Messages, &[], &body(twice, ""), r#"{"model":"m"}"#, &removed);

    let function = r#"{"type":"function","name":"f"}"#;
    for hosted in ["web_search", "file_search", "code_interpreter", "image_generation", "mcp", "from_tomorrow"] {
        let removed = format!("the tool `{hosted}`");
        let tools = format!(r#"{{"type":"{hosted}"}},{function}"#);
        check(GatewayRoute::Responses, &[], &body(&tools, ""), &body(function, ""), &[&removed]);
    }
    check_kept(GatewayRoute::Responses, &[], &body(r#"{"type":"shell"},{"type":"local_shell"}"#, ""));
    check_kept(GatewayRoute::Responses, &[], &body(r#"{"type":"shell","environment":{"type":"local"}}"#, ""));
    let container = r#"{"type":"shell","environment":{"type":"container_auto"}}"#;
    check(GatewayRoute::Responses, &[], &body(container, ""), r#"{"model":"m"}"#, &["the tool `shell`"]);

    let declared = r#"{"functionDeclarations":[{"name":"f"}]}"#;
    let mixed = r#"{"googleSearch":{},"functionDeclarations":[{"name":"f"}]}"#;
    let gemini = |tools: &str| format!(r#"{{"tools":[{tools}]}}"#);
    let removed = ["the tool `googleSearch`", "the tool `urlContext`"];
    check(
        GatewayRoute::GeminiStream,
        &[],
        &gemini(&format!(r#"{{"urlContext":{{}}}},{mixed}"#)),
        &gemini(declared),
        &removed,
    );
}

#[test]
fn fields_of_a_beta_flag_go_with_it() {
    let tool = r#"{"name":"t","input_schema":{},"defer_loading":true}"#;
    let mark = r#"{"type":"ephemeral","scope":"global"}"#;
    let body = |tool: &str, mark: &str| {
        format!(
            r#"{{"model":"m","system":[{{"type":"text","text":"scope","cache_control":{mark}}}],"tools":[{tool}]}}"#
        )
    };
    let expected = body(r#"{"name":"t","input_schema":{}}"#, r#"{"type":"ephemeral"}"#);
    let removed = ["the field `defer_loading` of a tool", "the field `scope` of a cache mark"];
    check(GatewayRoute::Messages, &[], &body(tool, mark), &expected, &removed);
    check_kept(GatewayRoute::Messages, &[Beta], &body(tool, mark));
}

#[test]
fn remote_content_becomes_a_text() {
    let removed = ["remote content (a URL or a file id)"];
    let check_block = |route: GatewayRoute, around: (&str, &str), block: &str, text: Option<&str>| {
        let body = |block: &str| format!("{}{block}{}", around.0, around.1);
        match text {
            Some(text) => check(route, &[], &body(block), &body(text), &removed),
            None => check_kept(route, &[], &body(block)),
        }
        check_kept(route, &[RemoteContent, Beta], &body(block));
    };
    let text = Some(r#"{"type":"text","text":"[remote content removed]"}"#);
    let messages =
        (r#"{"model":"m","messages":[{"role":"user","content":[{"type":"tool_result","content":["#, "]}]}]}");
    let anthropic = |block, text| check_block(GatewayRoute::Messages, messages, block, text);
    anthropic(r#"{"type":"image","source":{"type":"url","url":"https://a.example/b.png"}}"#, text);
    anthropic(r#"{"type":"document","source":{"type":"file","file_id":"f"}}"#, text);
    anthropic(r#"{"type":"container_upload","file_id":"f"}"#, text);
    anthropic(r#"{"type":"image","source":{"type":"base64","type":"u\u0072l","url":"h"}}"#, text);
    anthropic(r#"{"type":"image","source":{"type":"base64","data":"AAAA"}}"#, None);
    anthropic(r#"{"type":"text","text":"{\"source\":{\"type\":\"url\"}}"}"#, None);
    let call = r#"{"type":"tool_use","id":"t","name":"n","input":{"type":"image","source":{"type":"url"}}}"#;
    anthropic(call, None);

    let chat = (r#"{"model":"m","messages":[{"role":"user","content":["#, "]}]}");
    let openai = |block, text| check_block(GatewayRoute::Chat, chat, block, text);
    openai(r#"{"type":"image_url","image_url":{"url":"https://a.example/b.png"}}"#, text);
    openai(r#"{"type":"file","file":{"file_id":"f"}}"#, text);
    openai(r#"{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}"#, None);

    let text = Some(r#"{"type":"input_text","text":"[remote content removed]"}"#);
    let input = (r#"{"model":"m","input":[{"role":"user","content":["#, "]}]}");
    let responses = |block, text| check_block(GatewayRoute::Responses, input, block, text);
    responses(r#"{"type":"input_image","image_url":"https://a.example/b.png"}"#, text);
    responses(r#"{"type":"input_file","file_url":"https://a.example/b.pdf"}"#, text);
    responses(r#"{"type":"input_image","file_id":"f"}"#, text);
    responses(r#"{"type":"input_image","image_url":"data:image/png;base64,AAAA","file_id":null}"#, None);

    let contents = (r#"{"contents":[{"role":"user","parts":["#, "]}]}");
    let gemini = |part, text| check_block(GatewayRoute::GeminiGenerate, contents, part, text);
    gemini(r#"{"fileData":{"fileUri":"https://a.example/b"}}"#, Some(r#"{"text":"[remote content removed]"}"#));
    gemini(r#"{"inlineData":{"data":"AAAA"}}"#, None);
    gemini(r#"{"functionCall":{"name":"f","args":{"fileData":{}}}}"#, None);
}
