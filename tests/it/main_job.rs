//! Main use case, event by event, on a machine without a key or a network: a task for the demo
//! model.

use serde_json::json;

use greenroom_testkit::{
    driver::TestDriver,
    on_each_driver,
    server::{TestServer, TestServerOptions},
    socket::TestSocket,
};

on_each_driver!(task_completes_and_journal_has_every_step, late_client_receives_earlier_events);

async fn task_completes_and_journal_has_every_step(driver: TestDriver) {
    // Slow enough for every thought to be seen while it grows.
    let options = TestServerOptions::new(driver).env("GREENROOM_MODEL__DEMO_TOKENS_PER_SECOND", "200");
    let server = TestServer::start(options).await;
    let mut socket =
        TestSocket::handshake(&server.rest, &format!("/ws?token={}", server.rest.token), &[]).await.expect("open");
    socket.send_text(r#"{"action": "start", "args": {"task": "write a bash script that prints hello"}}"#).await;

    let session = socket.session().await;
    let start = socket.action("start").await;
    assert_eq!(start["args"]["task"], "write a bash script that prints hello");
    assert_eq!(start["source"], "user");
    socket.delta("thinking").await;
    socket.delta("text").await;
    let write = socket.action("write").await;
    let wrote = socket.observation("write").await;
    assert_eq!((&wrote["item"], &wrote["cause"]), (&write["item"], &write["seq"]));
    let run = socket.action("run").await;
    let ran = socket.observation("run").await;
    assert_eq!((&ran["extras"]["exit_code"], &ran["cause"]), (&json!(0), &run["seq"]));
    assert!(ran["content"].as_str().expect("output").contains("hello"), "{ran}");
    socket.action("finish").await;
    socket.state("idle").await;

    let live = socket.events();
    assert_eq!(live, server.rest.events(&session).await, "the journal has exactly the events that the client received");
    whole_texts_follow_their_deltas(&socket);
}

/// Checks that exactly one durable event ends the deltas of each item, and contains the whole text.
fn whole_texts_follow_their_deltas(socket: &TestSocket) {
    let texts = socket.seen.iter().filter(|frame| frame["delta"] == "text" || frame["delta"] == "thinking");
    let mut items: Vec<_> = texts.map(|frame| frame["item"].clone()).collect();
    items.dedup();
    assert!(items.len() >= 2, "the demo thinks and speaks");
    for item in items {
        let ends: Vec<_> = socket
            .events()
            .into_iter()
            .filter(|event| event["item"] == item)
            .filter(|event| event["observation"] == "message" || event["observation"] == "think")
            .collect();
        assert_eq!(ends.len(), 1, "item {item}: {ends:?}");
        let mut text = String::new();
        for piece in socket.seen.iter().filter(|frame| frame.get("delta").is_some() && frame["item"] == item) {
            text.truncate(piece["offset"].as_u64().expect("an offset") as usize);
            text.push_str(piece["content"].as_str().expect("a content"));
        }
        let whole = ends[0]["content"].as_str().expect("a text");
        assert!(whole.starts_with(text.trim_end()), "pieces {text:?} of {whole:?}");
    }
}

async fn late_client_receives_earlier_events(driver: TestDriver) {
    let server = TestServer::start(TestServerOptions::new(driver)).await;
    let session_id = server.rest.start("say hello").await;
    server.rest.until_captured(&session_id).await;
    let all = server.rest.events(&session_id).await;

    let mut from_start = TestSocket::attach(&server.rest, &session_id).await;
    let synced = from_start.status("synced").await;
    assert_eq!(from_start.events(), all);
    assert_eq!(synced["seq"], all.len());

    let mut from_cursor = TestSocket::attach_after(&server.rest, &session_id, 3).await;
    from_cursor.status("synced").await;
    assert_eq!(from_cursor.events(), all[3..]);

    let mut live = TestSocket::attach_after(&server.rest, &session_id, "tail").await;
    live.status("synced").await;
    assert_eq!(live.events(), [] as [serde_json::Value; 0]);
    live.send_request("message", json!({ "content": "and once more" })).await;
    let first = live.until("a durable event", |frame| frame.get("at").is_some()).await;
    assert_eq!(first["seq"], all.len() + 1);
    live.action("run").await;
    live.state("idle").await;
    from_start.state("idle").await;
    assert_eq!(from_start.events(), server.rest.events(&session_id).await);
}
