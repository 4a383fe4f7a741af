//! Search through what was said, over real sessions and their journal.

use serde_json::{Value, json};

use greenroom_testkit::{
    driver::TestDriver,
    server::{TestServer, TestServerOptions},
};

fn hits(page: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    page["items"].as_array().expect("a list").iter().map(|hit| (text(&hit["session"]), text(&hit["kind"]))).collect()
}

#[tokio::test]
async fn messages_and_commands_are_found_across_restarts_and_archived_or_not() {
    let server = TestServer::start(TestServerOptions::new(TestDriver::Process)).await;
    let rest = &server.rest;
    let old = rest.start("run: echo Sourdough && echo done").await;
    rest.until_state(&old, "idle").await;
    let new = rest.start("say something about SOURDOUGH").await;
    rest.until_state(&new, "idle").await;
    rest.patch(&format!("/api/sessions/{old}"), json!({ "archived": true })).await.expect(200);

    let found = rest.get("/api/search?q=sourdough").await.expect(200);
    let all = hits(&found);
    let kinds =
        |session: &str| all.iter().filter(|(id, _)| id == session).map(|(_, kind)| kind.as_str()).collect::<Vec<_>>();
    assert!(kinds(&new).contains(&"chat"), "{found}");
    assert!(kinds(&old).contains(&"chat") && kinds(&old).contains(&"run"), "{found}");
    let first_of_old = all.iter().position(|(id, _)| *id == old).expect("it is found");
    assert!(all[..first_of_old].iter().all(|(id, _)| *id == new), "newest activity first: {found}");
    for hit in found["items"].as_array().expect("a list") {
        assert_eq!(hit["archived"], json!(hit["session"] == json!(old)), "{hit}");
        let events = rest.events(hit["session"].as_str().expect("an id")).await;
        let event = &events[hit["seq"].as_u64().expect("a number") as usize - 1];
        assert_eq!((&event["at"], &event["source"]), (&hit["at"], &hit["source"]), "{hit}");
        assert!(event.to_string().to_lowercase().contains("sourdough"), "{event}");
    }

    let server = server.kill9().await.restart().await;
    assert_eq!(hits(&server.rest.get("/api/search?q=SOURDOUGH").await.expect(200)), all);
    let (mut paged, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.rest.get(&format!("/api/search?q=sourdough&limit=1{cursor}")).await.expect(200);
        paged.extend(hits(&page));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(paged, all);
    server.rest.delete(&format!("/api/sessions/{old}?purge=true")).await.expect(204);
    let left = hits(&server.rest.get("/api/search?q=sourdough").await.expect(200));
    assert!(!left.is_empty() && left.iter().all(|(id, _)| *id == new), "{left:?}");
    server.rest.get("/api/search?q=").await.error(400, "invalid_args");
    server.leaves_nothing().await;
}
