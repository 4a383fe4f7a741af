//! Name of an admitted client, for events that record a person's decision.

use std::{fmt, sync::Arc};

/// Name of an admitted client: of its browser, such as `Firefox on Linux`, or `token`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientName(Arc<str>);

impl ClientName {
    /// Returns the name of a client that was admitted with the token itself: a script.
    pub fn of_token() -> ClientName {
        ClientName("token".into())
    }

    pub(super) fn of_browser(name: &str) -> ClientName {
        ClientName(name.into())
    }
}

impl fmt::Display for ClientName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
