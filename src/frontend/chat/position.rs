//! Position of a chat in its session: from now on, or after an event that the client received last.

use std::sync::Arc;

use greenroom_protocol::{Event, EventBody, Observation, ObservationKind};

use crate::{
    frontend::{
        EventPull, FrontendServices,
        chat_protocol::{ChatTranslator, TurnName, is_rest},
    },
    session::{RequestError, turn_start_seq},
    store::{ReadLimit, Seq, SessionId, SessionSnapshot, Store, StoreError, damage::read_past_damage},
};

/// Bounds of one read of the journal.
const PAGE: ReadLimit = ReadLimit { events: 256, bytes: 256 * 1024 };

/// Begins a chat at the end of the journal.
pub(super) async fn chat_from_now(
    services: Arc<FrontendServices>,
    id: SessionId,
) -> Result<(EventPull, ChatTranslator), RequestError> {
    let (pull, snapshot) = EventPull::join(services.clone(), id, None).await?;
    let turn = current_turn(&*services.store, &snapshot).await;
    Ok((pull, ChatTranslator::joining(turn)))
}

/// Continues a chat whose client has received everything up to event `after`.
pub(super) async fn chat_after(
    services: Arc<FrontendServices>,
    id: SessionId,
    after: Seq,
) -> Result<(EventPull, ChatTranslator), RequestError> {
    let (pull, snapshot) = EventPull::join(services.clone(), id, Some(after)).await?;
    let received = received_chat(&*services.store, id, after.min(snapshot.tail)).await;
    Ok((pull, received.map_err(|e| RequestError::Journal(e.to_string()))?))
}

/// Returns the state of a chat that has received the events up to `last`. Reads from the last event
/// before which no turn was open.
async fn received_chat(store: &dyn Store, id: SessionId, last: Seq) -> Result<ChatTranslator, StoreError> {
    let (mut rest, mut to) = (None, last);
    while rest.is_none() && to > 0 {
        let from = to.saturating_sub(PAGE.events as Seq);
        read_events(store, id, (from, to), |event| {
            if is_rest(&event) {
                rest = Some(event.seq);
            }
        })
        .await?;
        to = from;
    }
    let mut translator = ChatTranslator::default();
    read_events(store, id, (rest.unwrap_or(0), last), |event| drop(translator.event(event))).await?;
    Ok(translator)
}

/// Reads the events after `after` and up to `to`. Events that do not parse have no form in the chat
/// protocol, and are left out.
async fn read_events(
    store: &dyn Store,
    id: SessionId,
    (mut after, to): (Seq, Seq),
    mut visit: impl FnMut(Event),
) -> Result<(), StoreError> {
    while after < to {
        let page = read_past_damage(store, id, after, PAGE).await?;
        let Some((newest, _)) = page.last() else { break };
        after = *newest;
        let page = page.iter().take_while(|(seq, _)| *seq <= to);
        page.filter_map(|(_, event)| serde_json::from_slice(&event.json).ok()).for_each(&mut visit);
        // Yields between two reads, also with a store that answers from memory.
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// Returns the session's current turn. The event that began the turn contains its name.
async fn current_turn(store: &dyn Store, snapshot: &SessionSnapshot) -> Option<TurnName> {
    let began = turn_start_seq(&snapshot.record)?;
    let first = read_past_damage(store, snapshot.record.id, began - 1, ReadLimit { events: 1, bytes: 0 })
        .await
        .unwrap_or_default();
    let event = first.first().and_then(|(_, event)| serde_json::from_slice::<Event>(&event.json).ok());
    match event.map(|event| event.body) {
        Some(EventBody::Observation(Observation { kind: ObservationKind::Chat { turn, .. }, .. })) => Some(turn),
        // The event is damaged. The turn exists all the same, without a known name.
        Some(EventBody::Observation(_) | EventBody::Action(_) | EventBody::Opaque(_)) | None => Some(None),
    }
}
