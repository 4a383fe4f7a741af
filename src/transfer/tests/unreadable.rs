//! A disk that does not give some of what is on it.

use async_trait::async_trait;
use futures::future::BoxFuture;

use super::*;
use crate::store::{AppendError, Compacted, Epoch, Listing, Record};

/// Gives no event of `session` from `from` on, and none of its contents.
struct Unreadable {
    inner: MemoryStore,
    session: SessionId,
    from: Seq,
}

fn broken() -> StoreError {
    io::Error::other("input/output error").into()
}

#[async_trait]
impl Store for Unreadable {
    async fn read(&self, session: SessionId, after: Seq, limit: Limit) -> Result<Vec<StoredEvent>, StoreError> {
        let events = self.inner.read(session, after, limit).await?;
        let is_hit = session == self.session && events.iter().any(|(seq, _)| *seq >= self.from);
        if is_hit { Err(broken()) } else { Ok(events) }
    }
    async fn content(&self, session: SessionId, name: &str, from: u64, len: usize) -> Result<Option<Part>, StoreError> {
        if session == self.session { Err(broken()) } else { self.inner.content(session, name, from, len).await }
    }
    async fn get(&self, session: SessionId) -> Result<Option<Snapshot>, StoreError> {
        self.inner.get(session).await
    }
    async fn list(&self, query: Query) -> Result<Listing, StoreError> {
        self.inner.list(query).await
    }
    async fn live(&self) -> Result<Vec<Snapshot>, StoreError> {
        self.inner.live().await
    }
    async fn create(&self, record: Record) -> Result<Snapshot, StoreError> {
        self.inner.create(record).await
    }
    async fn claim(&self, session: SessionId) -> Result<(Epoch, Snapshot), StoreError> {
        self.inner.claim(session).await
    }
    fn append(
        &self,
        session: SessionId,
        epoch: Epoch,
        at: Seq,
        batch: Batch,
    ) -> BoxFuture<'static, Result<Seq, AppendError>> {
        self.inner.append(session, epoch, at, batch)
    }
    async fn put(&self, record: Record, revision: u64) -> Result<Snapshot, StoreError> {
        self.inner.put(record, revision).await
    }
    async fn forget(&self, session: SessionId) -> Result<(), StoreError> {
        self.inner.forget(session).await
    }
    async fn put_content(&self, session: SessionId, content: Bytes) -> Result<String, StoreError> {
        self.inner.put_content(session, content).await
    }
    async fn restore_content(&self, session: SessionId, name: &str, content: Bytes) -> Result<(), StoreError> {
        self.inner.restore_content(session, name, content).await
    }
    async fn extend_content(&self, session: SessionId, name: &str, at: u64, piece: Bytes) -> Result<(), StoreError> {
        self.inner.extend_content(session, name, at, piece).await
    }
    async fn finish_content(&self, session: SessionId, name: &str) -> Result<bool, StoreError> {
        self.inner.finish_content(session, name).await
    }
    async fn compact(&self) -> Result<Compacted, StoreError> {
        self.inner.compact().await
    }
    async fn check(&self) -> Result<(), StoreError> {
        self.inner.check().await
    }
}

#[tokio::test]
async fn a_session_that_the_disk_does_not_give_is_cut_and_named_and_the_others_are_exported() {
    let (inner, ids) = full().await;
    let sound = text(&inner, Some(ids[0])).await;
    let store = Unreadable { inner, session: ids[2], from: 400 };
    let refused = export(&store, None, Damaged::Refused, &mut Vec::new()).await.expect_err("it cannot be read");
    assert!(refused.to_string().contains(&ids[2].to_string()), "{refused}");
    let (mut told, mut out) = (Vec::new(), Vec::new());
    let moved = export(&store, None, Damaged::Skipped(&mut told), &mut out).await.expect("the rest is exported");
    assert_eq!(moved, Moved { sessions: 3, events: 5 + 399, known: 0 });
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    let named = format!("session `{}`", ids[2]);
    assert!(told.len() == 2 && told.iter().all(|what| what.contains(&named)), "{told:?}");
    assert!(told[0].starts_with("content") && told[1].contains("from event 400 on"), "{told:?}");

    let (_dir, other) = local();
    take_in(&other, &String::from_utf8(out).expect("text")).await.expect("it is imported");
    assert_eq!(text(other.as_ref(), Some(ids[0])).await, sound);
    assert_eq!(other.get(ids[2]).await.expect("it answers").expect("it is there").tail, 399);
    let whole = with_head(&text(&store.inner, None).await);
    assert_eq!(take_in(&other, &whole).await.expect("it goes on").events, 301);
}
