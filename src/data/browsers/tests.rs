use std::path::Path;

use tokio_util::sync::CancellationToken;

use super::*;

const TOKEN: &str = "0123456789abcdef";
const DAY: Duration = Duration::from_hours(24);

fn ledger(token: &str) -> BrowserLedger {
    let (token, grant) = CurrentToken::fixed(BearerToken::new(token), &CancellationToken::new()).get_with_grant();
    let stored = StoredBrowsers { salt: "salt".to_owned(), token_tag: String::new(), items: Vec::new() };
    BrowserLedger::new(stored, token, grant)
}

/// Ledger of a server that starts again with the file of `before`.
fn restarted(before: &BrowserLedger, token: &str) -> BrowserLedger {
    let (token, grant) = CurrentToken::fixed(BearerToken::new(token), &CancellationToken::new()).get_with_grant();
    BrowserLedger::new(serde_json::from_str(&before.to_json()).expect("the file is JSON"), token, grant)
}

fn at(days: u64) -> Now {
    let since_start = DAY * u32::try_from(days).expect("a test is short");
    Now {
        wall_ms: 1_800_000_000_000 + i64::try_from(since_start.as_millis()).expect("a time"),
        since_boot: since_start,
    }
}

/// Same moment as `now`, on a wall clock that is wrong by this many days.
fn wrong_by(days: i64, now: Now) -> Now {
    Now { wall_ms: now.wall_ms + days * 86_400_000, ..now }
}

fn sign_in(ledger: &mut BrowserLedger, id: u64, now: Now) -> BrowserCredentials {
    ledger.sign_in(None, BrowserId(id), "Firefox on Linux", now)
}

#[test]
fn cookie_and_secret_admit_only_together() {
    let mut ledger = ledger(TOKEN);
    let (a, b) = (sign_in(&mut ledger, 1, at(0)), sign_in(&mut ledger, 2, at(0)));
    let check = |cookie: &str, secret: &str, expected| assert_eq!(ledger.check(cookie, secret, at(1)), expected);
    check(&a.cookie, &a.secret, Ok(BrowserId(1)));
    check(&b.cookie, &b.secret, Ok(BrowserId(2)));
    check(&a.cookie, &b.secret, Err(BrowserRejection::SignedOut));
    for forged in
        [&a.cookie, TOKEN, "", ".", "0000000000000001", "0000000000000001.", &a.secret.replace("00001.", "00003.")]
    {
        check(&a.cookie, forged, Err(BrowserRejection::Forged));
    }
    check(&a.secret, &a.secret, Err(BrowserRejection::Forged));
    assert!(!a.cookie.contains(TOKEN) && !ledger.to_json().contains(TOKEN));
    for derived in [a.cookie, a.secret] {
        let mac = derived.split_once('.').expect("an id and a mac").1;
        assert!(!ledger.to_json().contains(mac), "the file holds nothing that admits");
    }
}

#[test]
fn other_token_or_other_salt_ends_the_sign_in() {
    let mut first = ledger(TOKEN);
    let browser = sign_in(&mut first, 1, at(0));
    assert_eq!(restarted(&first, TOKEN).check(&browser.cookie, &browser.secret, at(1)), Ok(BrowserId(1)));
    let replaced = restarted(&first, "fedcba9876543210");
    assert_eq!(replaced.check(&browser.cookie, &browser.secret, at(1)), Err(BrowserRejection::Forged));
    assert_eq!((replaced.list(at(1)), &replaced.salt), (Vec::new(), &first.salt));
    let mut other_directory = ledger(TOKEN);
    other_directory.salt = "other".to_owned();
    sign_in(&mut other_directory, 1, at(0));
    assert_eq!(other_directory.check(&browser.cookie, &browser.secret, at(0)), Err(BrowserRejection::Forged));
    let grant = first.record_use(BrowserId(1), at(1)).expect("signed in").0;
    let (token, new_grant) =
        CurrentToken::fixed(BearerToken::new("fedcba9876543210"), &CancellationToken::new()).get_with_grant();
    first.follow(token, new_grant);
    assert!(first.list(at(1)).is_empty() && !grant.is_revoked(), "the replaced token's own grant ends the connections");
}

#[test]
fn each_use_extends_the_sign_in() {
    let mut ledger = ledger(TOKEN);
    let browser = sign_in(&mut ledger, 1, at(0));
    let check = |ledger: &BrowserLedger, now, expected| {
        assert_eq!(ledger.check(&browser.cookie, &browser.secret, now).is_ok(), expected, "{now:?}");
        assert_eq!(ledger.list(now).len(), usize::from(expected));
    };
    check(&ledger, at(30), true);
    check(&ledger, at(31), false);
    ledger.record_use(BrowserId(1), at(30));
    check(&ledger, at(60), true);
    check(&restarted(&ledger, TOKEN), at(60), true);
    check(&restarted(&ledger, TOKEN), at(61), false);
    assert!(sign_in(&mut ledger, 2, at(61)).cookie != browser.cookie);
}

/// A clock without a battery starts in 1970; another is set years ahead until the time server
/// answers.
#[test]
fn clock_that_jumps_ends_no_sign_in() {
    for wrong in [-20_000, -40, 40, 4_000] {
        let mut ledger = ledger(TOKEN);
        let browser = sign_in(&mut ledger, 1, at(0));
        let admits = |ledger: &BrowserLedger, now| ledger.check(&browser.cookie, &browser.secret, now).is_ok();
        assert!(admits(&ledger, wrong_by(wrong, at(1))), "{wrong}: while the server runs");
        ledger.record_use(BrowserId(1), wrong_by(wrong, at(1)));
        assert!(admits(&ledger, at(2)), "{wrong}: after the clock was corrected");
        ledger.record_use(BrowserId(1), at(2));
        let after = restarted(&ledger, TOKEN);
        // A clock far ahead after a restart cannot be told from a server that was off for years.
        assert_eq!(admits(&after, wrong_by(wrong, at(3))), wrong < 0, "{wrong}: after a restart");
        assert!(admits(&after, at(3)), "{wrong}: once it is correct");
        assert!(admits(&restarted(&after, TOKEN), at(3)), "{wrong}: the entry is kept");
    }
}

#[test]
fn last_use_is_written_once_an_hour() {
    let mut ledger = ledger(TOKEN);
    sign_in(&mut ledger, 1, at(0));
    let mut is_due = |minutes: u64| {
        let passed = Duration::from_mins(minutes);
        let now =
            Now { wall_ms: at(0).wall_ms + i64::try_from(passed.as_millis()).expect("a time"), since_boot: passed };
        ledger.record_use(BrowserId(1), now).expect("signed in").1
    };
    let due: Vec<bool> = [1, 59, 60, 61, 119, 120, 0].map(&mut is_due).to_vec();
    assert_eq!(due, [false, false, true, false, false, true, true], "also after the clock went back");
}

#[test]
fn browsers_are_bounded_and_the_longest_unused_goes() {
    let mut ledger = ledger(TOKEN);
    let first = sign_in(&mut ledger, 0, at(0));
    for id in 1..100 {
        sign_in(&mut ledger, id, at(0));
    }
    let grant = ledger.record_use(BrowserId(1), at(0)).expect("signed in").0;
    let used = ledger.record_use(BrowserId(0), at(0)).expect("signed in").0;
    sign_in(&mut ledger, 100, at(0));
    assert_eq!(ledger.list(at(0)).len(), MAX_BROWSERS);
    assert!(ledger.position(BrowserId(2)).is_none() && !used.is_revoked() && !grant.is_revoked());
    assert_eq!(ledger.list(at(0))[0].id, BrowserId(100), "newest use first");
    let again = ledger.sign_in(Some(&first.cookie), BrowserId(7), "Chrome on Android", at(1));
    assert_eq!((again.cookie, ledger.list(at(1)).len()), (first.cookie, MAX_BROWSERS), "the same browser");
    assert_eq!(ledger.list(at(1))[0].name, "Chrome on Android");
    assert!(ledger.sign_out(BrowserId(0)) && used.is_revoked());
    assert!(!ledger.sign_out(BrowserId(0)));
}

#[test]
fn browsers_that_only_opened_the_link_go_first() {
    let mut ledger = ledger(TOKEN);
    sign_in(&mut ledger, 0, at(0));
    ledger.record_use(BrowserId(0), at(1)).expect("signed in");
    for id in 1..=100 {
        sign_in(&mut ledger, id, at(2));
    }
    assert!(ledger.position(BrowserId(0)).is_some() && ledger.position(BrowserId(1)).is_none());
}

#[test]
fn id_has_one_spelling() {
    let check = |text: &str, expected: bool| assert_eq!(text.parse::<BrowserId>().is_ok(), expected, "{text}");
    check("00000000000000ff", true);
    check("00000000000000FF", false);
    check("+0000000000000ff", false);
    check("ff", false);
    check("", false);
}

fn open(path: &Path) -> Arc<Browsers> {
    let data = Arc::new(DataDir::open_unlocked(path).expect("the directory opens"));
    let token = CurrentToken::fixed(BearerToken::new(TOKEN), &CancellationToken::new());
    Arc::new(Browsers::open(data, token).expect("random numbers are available"))
}

#[tokio::test]
async fn browsers_survive_a_restart_in_a_private_file() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().expect("a temporary directory");
    let browsers = open(dir.path());
    let browser = browsers.sign_in(None, "Safari on iOS").await.expect("it signs in");
    let mode = dir.path().join(FILE).metadata().expect("the file exists").permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let id = browsers.check(&browser.cookie, &browser.secret).expect("signed in");
    let again = open(dir.path());
    assert_eq!((again.check(&browser.cookie, &browser.secret), again.server_id()), (Ok(id), browsers.server_id()));
    assert!(again.sign_out(id).await.expect("the disk takes it"));
    assert_eq!(open(dir.path()).check(&browser.cookie, &browser.secret), Err(BrowserRejection::SignedOut));
}

#[tokio::test]
async fn damaged_file_signs_out_and_prevents_no_start() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let browser = open(dir.path()).sign_in(None, "Safari on iOS").await.expect("it signs in");
    std::fs::write(dir.path().join(FILE), "{\"salt\":").expect("the file is there");
    let browsers = open(dir.path());
    assert_eq!(browsers.check(&browser.cookie, &browser.secret), Err(BrowserRejection::Forged));
    let new = browsers.sign_in(None, "Safari on iOS").await.expect("it signs in");
    assert!(open(dir.path()).check(&new.cookie, &new.secret).is_ok());
}
