//! Rules of large contents.

use std::sync::Arc;

use bytes::Bytes;
use greenroom_protocol::observation::AgentState;

use super::{claimed, events, record};
use crate::store::{AppendBatch, ContentPiece, ContentSlice, SessionId, SessionRecord, Store, StoreError};

fn piece(offset: u64, text: &'static str) -> ContentPiece {
    ContentPiece { offset, bytes: Bytes::from_static(text.as_bytes()) }
}

pub(super) async fn read_content(store: &impl Store, session: SessionId, name: &str) -> Option<Bytes> {
    let part = store.content(session, name, 0, usize::MAX >> 1).await.unwrap()?;
    assert_eq!(part.total, part.bytes.len() as u64);
    Some(part.bytes)
}

pub(in super::super) async fn content_is_assembled_from_pieces(store: Arc<impl Store>) {
    let (session, epoch) = claimed(&*store, "a").await;
    let name = "01KAHTXV3M9W6N2Q4ZB8C5R7DE";
    let extend = |offset, text| store.extend_content(session, epoch, name, piece(offset, text));
    assert!(!store.finish_content(session, epoch, name).await.unwrap(), "no piece was written");
    extend(0, "one two ").await.unwrap();
    extend(8, "three").await.unwrap();
    extend(8, "three").await.unwrap();
    assert_eq!(read_content(&*store, session, name).await, None, "the content is not finished yet");
    assert!(store.finish_content(session, epoch, name).await.unwrap());
    assert!(store.finish_content(session, epoch, name).await.unwrap(), "the second call returns the same answer");
    assert_eq!(read_content(&*store, session, name).await.as_deref(), Some(&b"one two three"[..]));
    let part = |from, len| store.content(session, name, from, len);
    assert_eq!(part(4, 3).await.unwrap(), Some(ContentSlice { bytes: Bytes::from_static(b"two"), total: 13 }));
    assert_eq!(part(99, 3).await.unwrap(), Some(ContentSlice { bytes: Bytes::new(), total: 13 }));

    extend(0, "ANOTHER").await.unwrap();
    assert!(store.finish_content(session, epoch, name).await.unwrap());
    assert_eq!(
        read_content(&*store, session, name).await.map(|it| it.len()),
        Some(13),
        "a finished content does not change"
    );
    store.forget(session, epoch).await.unwrap();
    assert!(matches!(extend(0, "late").await, Err(StoreError::NoSession(_))));
}

pub(in super::super) async fn content_with_hole_is_dropped(store: Arc<impl Store>) {
    let (session, epoch) = claimed(&*store, "a").await;
    let extend = |name, offset, text| store.extend_content(session, epoch, name, piece(offset, text));
    let [begun, lost] = ["01KAHTXV3M9W6N2Q4ZB8C5R7DE", "01KAHTXV3M9W6N2Q4ZB8C5R7DF"];
    extend(begun, 0, "one ").await.unwrap();
    extend(begun, 5, "three").await.unwrap();
    extend(begun, 10, "four").await.unwrap();
    extend(lost, 4, "two").await.unwrap();
    for name in [begun, lost] {
        assert!(!store.finish_content(session, epoch, name).await.unwrap(), "{name}");
        assert_eq!(read_content(&*store, session, name).await, None, "{name}");
    }
    extend(begun, 0, "anew").await.unwrap();
    assert!(store.finish_content(session, epoch, begun).await.unwrap());
    assert_eq!(read_content(&*store, session, begun).await.as_deref(), Some(&b"anew"[..]));
    extend(begun, 4, "late").await.unwrap();
    assert!(store.finish_content(session, epoch, begun).await.unwrap());
    assert_eq!(
        read_content(&*store, session, begun).await.as_deref(),
        Some(&b"anew"[..]),
        "a finished content does not change"
    );
}

pub(in super::super) async fn unfinished_contents_of_stopped_sessions_are_dropped(store: Arc<impl Store>) {
    let (session, epoch) = claimed(&*store, "a").await;
    let [finished, unfinished] = ["01KAHTXV3M9W6N2Q4ZB8C5R7DE", "01KAHTXV3M9W6N2Q4ZB8C5R7DF"];
    let begin = |name| store.extend_content(session, epoch, name, piece(0, "text"));
    begin(finished).await.unwrap();
    assert!(store.finish_content(session, epoch, finished).await.unwrap());
    begin(unfinished).await.unwrap();
    store.compact().await.unwrap();
    store.compact().await.unwrap();
    store.extend_content(session, epoch, unfinished, piece(4, ", more")).await.unwrap();
    store.drop_unfinished(session, epoch).await.unwrap();
    store.drop_unfinished(SessionId::generate(), epoch).await.unwrap();
    assert!(!store.finish_content(session, epoch, unfinished).await.unwrap(), "the unfinished content was dropped");

    let mut at = 0;
    for state in [AgentState::Stopped, AgentState::Failed, AgentState::Ended] {
        begin(unfinished).await.unwrap();
        let stopped = SessionRecord { id: session, state, ..record("a") };
        at = store
            .append(session, epoch, at, AppendBatch { record: Some(Arc::new(stopped)), ..events(session, at, 1) })
            .await
            .unwrap();
        store.compact().await.unwrap();
        store.compact().await.unwrap();
        assert!(!store.finish_content(session, epoch, unfinished).await.unwrap(), "{state:?}");
    }
    assert_eq!(read_content(&*store, session, finished).await.as_deref(), Some(&b"text"[..]));
}

pub(in super::super) async fn contents_are_stored_per_session(store: Arc<impl Store>) {
    let (session, epoch) = claimed(&*store, "a").await;
    let (other, other_epoch) = claimed(&*store, "b").await;
    let content = Bytes::from(vec![7; 100_000]);
    let name = store.put_content(session, epoch, content.clone()).await.unwrap();
    assert_eq!(read_content(&*store, session, &name).await, Some(content.clone()));
    assert_eq!(read_content(&*store, other, &name).await, None);
    store.restore_content(other, other_epoch, &name, content.clone()).await.unwrap();
    store.restore_content(other, other_epoch, &name, Bytes::from_static(b"again")).await.unwrap();
    assert_eq!(read_content(&*store, other, &name).await, Some(Bytes::from_static(b"again")));
    assert_eq!(read_content(&*store, session, &name).await.map(|it| it.len()), Some(100_000));
    for name in ["", ".", "..", "../lock", "a/b", "nothing"] {
        assert_eq!(read_content(&*store, session, name).await, None, "{name}");
    }
    let missing = store.put_content(SessionId::generate(), epoch, Bytes::new()).await;
    assert!(matches!(missing, Err(StoreError::NoSession(_))));
}

pub(in super::super) async fn contents_of_older_epoch_are_fenced(store: Arc<impl Store>) {
    let (session, old) = claimed(&*store, "a").await;
    let [begun, whole] = ["01KAHTXV3M9W6N2Q4ZB8C5R7DE", "01KAHTXV3M9W6N2Q4ZB8C5R7DF"];
    store.extend_content(session, old, begun, piece(0, "one ")).await.unwrap();
    store.restore_content(session, old, whole, Bytes::from_static(b"whole")).await.unwrap();
    let (new, _) = store.claim(session).await.unwrap();
    for epoch in [0, old, new + 1] {
        let rejected = [
            store.put_content(session, epoch, Bytes::from_static(b"late")).await.map(drop),
            store.restore_content(session, epoch, whole, Bytes::from_static(b"late")).await,
            store.extend_content(session, epoch, begun, piece(4, "late")).await,
            store.finish_content(session, epoch, begun).await.map(drop),
            store.drop_unfinished(session, epoch).await,
        ];
        assert!(rejected.iter().all(|answer| matches!(answer, Err(StoreError::Fenced))), "{epoch}: {rejected:?}");
    }
    assert_eq!(read_content(&*store, session, whole).await.as_deref(), Some(&b"whole"[..]));
    store.extend_content(session, new, begun, piece(4, "two")).await.unwrap();
    assert!(store.finish_content(session, new, begun).await.unwrap());
    assert_eq!(read_content(&*store, session, begun).await.as_deref(), Some(&b"one two"[..]));
}
