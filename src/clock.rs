//! The wall clock, as it stands on the wire: RFC 3339, UTC, milliseconds. For deadlines there is `std::time::Instant`.

use jiff::Timestamp;

/// Milliseconds since 1970.
pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Now, as the wire shows it.
pub fn now() -> String {
    rfc3339(now_ms())
}

/// `2026-01-31T12:00:00.000Z`
pub fn rfc3339(ms: i64) -> String {
    let at = Timestamp::from_millisecond(ms).unwrap_or_default();
    format!("{at:.3}")
}

/// Reads what [`rfc3339`] wrote; `None` for anything that is no time.
pub fn parse_ms(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(|at| at.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_has_milliseconds_and_reads_back() {
        assert_eq!(rfc3339(1_769_860_800_000), "2026-01-31T12:00:00.000Z");
        assert_eq!(parse_ms(&rfc3339(1_769_860_800_123)), Some(1_769_860_800_123));
    }
}
