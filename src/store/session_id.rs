//! Identifier of a session.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Identifier of a session: a ULID. Ids sort by creation time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(value_type = String, pattern = "^[0-7][0-9A-HJKMNP-TV-Z]{25}$", example = "01KAHTXV3M9W6N2Q4ZB8C5R7DE")]
#[serde(transparent)]
pub struct SessionId(ulid::Ulid);

impl SessionId {
    pub fn generate() -> SessionId {
        SessionId(ulid::Ulid::generate())
    }

    /// Returns the creation time in milliseconds since 1970.
    pub fn created_ms(self) -> i64 {
        i64::try_from(self.0.timestamp_ms()).unwrap_or_default()
    }

    /// Returns the sixteen bytes, which sort like the ids.
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_bytes()
    }

    pub fn from_bytes(bytes: [u8; 16]) -> SessionId {
        SessionId(ulid::Ulid::from_bytes(bytes))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Error for a text that is no ULID and therefore no session id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a session id; a session id is a ULID of 26 characters")]
pub struct InvalidSessionId;

impl FromStr for SessionId {
    type Err = InvalidSessionId;

    fn from_str(text: &str) -> Result<SessionId, InvalidSessionId> {
        text.parse().map(SessionId).map_err(|_| InvalidSessionId)
    }
}
