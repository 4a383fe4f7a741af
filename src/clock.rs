//! Wall clock in its wire form: RFC 3339, UTC, milliseconds. Deadlines use `std::time::Instant`.

use jiff::Timestamp;

/// Returns the milliseconds since 1970.
pub fn now_ms() -> i64 {
    Timestamp::now().as_millisecond()
}

/// Returns the current time in wire form.
pub fn now() -> String {
    rfc3339(now_ms())
}

/// Formats milliseconds since 1970 in wire form, for example `2026-01-31T12:00:00.000Z`.
pub fn rfc3339(ms: i64) -> String {
    let at = Timestamp::from_millisecond(ms).unwrap_or_default();
    format!("{at:.3}")
}

/// Parses the output of [`rfc3339`] to milliseconds since 1970. Returns `None` for any other text.
pub fn parse_ms(text: &str) -> Option<i64> {
    text.parse::<Timestamp>().ok().map(|at| at.as_millisecond())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_form_has_milliseconds_and_reads_back() {
        assert_eq!(rfc3339(1_769_860_800_000), "2026-01-31T12:00:00.000Z");
        assert_eq!(parse_ms(&rfc3339(1_769_860_800_123)), Some(1_769_860_800_123));
    }
}
