//! Reads a session's events from the log.

use std::{fs::File, io, sync::Arc};

use super::{
    catalog::CatalogError,
    frame::Payload,
    places::Place,
    recent::Page,
    segment::{Position, Window},
    shared::Shared,
};
use crate::store::{Limit, Seq, SessionId, StoreError, StoredEvent};

/// The events after `after`; stops before the first that cannot be read, which is an error only where it is the first.
pub(super) fn read(
    shared: &Shared,
    session: SessionId,
    after: Seq,
    limit: Limit,
) -> Result<Vec<StoredEvent>, StoreError> {
    let tail = shared.state().sessions.get(&session).ok_or(StoreError::NoSession(session))?.tail;
    let mut reader = Reader { shared, session, tail, page: Page::new(limit), open: None, window: Window::default() };
    match reader.fill(after) {
        Err(StoreError::Damaged { .. }) if !reader.page.events.is_empty() => Ok(reader.page.events),
        Err(error) => Err(error),
        Ok(()) => Ok(reader.page.events),
    }
}

struct Reader<'a> {
    shared: &'a Shared,
    session: SessionId,
    tail: Seq,
    page: Page,
    open: Option<(u32, Arc<File>)>,
    window: Window,
}

/// What came of reading one frame.
enum Step {
    /// Go on with this event.
    Next(Seq),
    Full,
    /// The index led to something else.
    Elsewhere,
}

impl Reader<'_> {
    fn fill(&mut self, after: Seq) -> Result<(), StoreError> {
        let mut seq = after.saturating_add(1);
        let mut missed = None;
        while seq <= self.tail && !self.page.is_full() {
            let places = self.shared.locate(self.session, seq)?;
            let begun_at = seq;
            for place in places {
                match self.place(place, seq)? {
                    Step::Next(next) => seq = next,
                    Step::Full => return Ok(()),
                    Step::Elsewhere => break,
                }
                if seq > self.tail {
                    return Ok(());
                }
            }
            if seq == begun_at {
                // An index that leads nowhere is read anew once; if it still does, the log itself lacks the event.
                if missed == Some(seq) {
                    return Err(self.damaged(seq, "the log lacks it"));
                }
                self.shared.distrust(&CatalogError::Mismatch)?;
                missed = Some(seq);
            }
        }
        Ok(())
    }

    /// Takes the events from `seq` on that stand in one frame.
    fn place(&mut self, place: Place, seq: Seq) -> Result<Step, StoreError> {
        let Some(at) = place.at else { return Err(self.damaged(seq, "a damaged part of the log held it")) };
        let Some(file) = self.file(at)? else { return Ok(Step::Elsewhere) };
        let offset = u64::from(at.offset);
        let header = match self.window.header(&file, offset)? {
            Some(Ok(header)) if header.holds(self.session, seq) => header,
            Some(Ok(_)) => return Ok(Step::Elsewhere),
            Some(Err(_)) | None => return Err(self.damaged(seq, &describe(at, "the header"))),
        };
        let payload = self.window.payload(&file, offset, &header)?.and_then(Payload::parse);
        let Some(mut payload) = payload else { return Err(self.damaged(seq, &describe(at, "the checksum"))) };
        for number in header.seq..header.seq + u64::from(header.count) {
            let Some(event) = payload.next_event() else { return Err(self.damaged(seq, &describe(at, "the format"))) };
            if number >= seq && !self.page.take(number, event) {
                return Ok(Step::Full);
            }
        }
        Ok(Step::Next(header.seq + u64::from(header.count)))
    }

    /// `None` where there is no such segment.
    fn file(&mut self, at: Position) -> Result<Option<Arc<File>>, StoreError> {
        if let Some((number, file)) = &self.open
            && *number == at.segment
        {
            return Ok(Some(file.clone()));
        }
        match self.shared.segments.file(at.segment) {
            Ok(file) => {
                self.window.clear();
                self.open = Some((at.segment, file.clone()));
                Ok(Some(file))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn damaged(&self, seq: Seq, detail: &str) -> StoreError {
        StoreError::Damaged { session: self.session, seq, detail: detail.to_owned() }
    }
}

fn describe(at: Position, what: &str) -> String {
    format!("{what} at byte {} of segment {} does not hold", at.offset, at.segment)
}
