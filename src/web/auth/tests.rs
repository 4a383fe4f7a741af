use std::sync::LazyLock;

use super::*;
use crate::data::{BearerToken, BrowserCredentials, DataDir};

const TOKEN: &str = "0123456789abcdef";
const HERE: &str = "http://localhost:3000";

/// Browsers of all tests in this file, with the credentials of one of them.
static BROWSERS: LazyLock<(Arc<Browsers>, BrowserCredentials)> = LazyLock::new(|| {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let data = DataDir::open_unlocked(dir.path()).expect("the directory opens");
    let token = CurrentToken::fixed(BearerToken::new(TOKEN), &Default::default());
    let browsers = Browsers::open(Arc::new(data), token).expect("random numbers are available");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let credentials = runtime.block_on(browsers.sign_in(None, "Firefox on Linux")).expect("it signs in");
    (Arc::new(browsers), credentials)
});

fn cookie() -> Option<&'static str> {
    Some(&BROWSERS.1.cookie)
}

fn secret() -> Option<&'static str> {
    Some(&BROWSERS.1.secret)
}

/// Proof of the signed-in browser.
fn browser() -> ClientProof {
    ClientProof::Browser(BROWSERS.0.list()[0].id)
}

fn auth(bound: &str) -> Auth {
    Auth {
        token: CurrentToken::fixed(BearerToken::new(TOKEN), &Default::default()),
        browsers: BROWSERS.0.clone(),
        tickets: Arc::default(),
        bound: bound.parse().expect("an address"),
        hosts: vec!["green.test".into(), "box.test:81".into()],
        origins: vec!["https://friend.test".into(), "https://green.test".into()],
        wrong_tokens: Default::default(),
    }
}

fn facts(route: RouteClass, access: RequestAccess) -> RequestFacts<'static> {
    RequestFacts {
        route,
        access,
        host: Some("localhost:3000"),
        is_https: false,
        origin: None,
        fetch_site: None,
        bearer: None,
        query: None,
        cookie: None,
        secret: None,
        ticket: None,
        address: "/",
        body: RequestBodyKind::Json,
    }
}

fn check(facts: RequestFacts<'_>, expected: AuthDecision) {
    assert_eq!(auth("127.0.0.1:3000").authorize(&facts), expected, "{facts:?}");
}

fn foreign(origin: &str) -> AuthDecision {
    AuthDecision::Reject(AuthError::Origin(origin.into()))
}

#[test]
fn own_hosts_pass_and_others_are_rejected() {
    let check = |bound: &str, host: Option<&str>, expected: bool| {
        let decision = auth(bound).authorize(&RequestFacts { host, ..facts(RouteClass::Health, RequestAccess::Read) });
        assert_eq!(decision == AuthDecision::Pass(ClientProof::None), expected, "{host:?} at {bound}");
    };
    let local = "127.0.0.1:3000";
    check(local, Some("localhost:3000"), true);
    check(local, Some("LOCALHOST:3000"), true);
    check(local, Some("127.0.0.1:3000"), true);
    check(local, Some("[::1]:3000"), true);
    check(local, Some("green.test"), true);
    check(local, Some("Green.Test:9"), true);
    check(local, Some("box.test:81"), true);
    check(local, Some("box.test"), false);
    check(local, Some("box.test:82"), false);
    check(local, Some("evil.test"), false);
    check(local, Some("evil.test:3000"), false);
    check(local, Some("localhost"), true);
    check(local, Some("localhost:8080"), true);
    check(local, Some("127.0.0.1:8080"), true);
    check(local, Some("[::1]:8080"), true);
    check("0.0.0.0:3000", Some("localhost:8080"), true);
    check("10.0.0.7:3000", Some("LOCALHOST:8080"), true);
    check(local, Some("a.localhost:3000"), false);
    check(local, Some("localhost.:3000"), false);
    check("0.0.0.0:3000", Some("10.0.0.7:8080"), false);
    check(local, Some("localhost.evil.test:3000"), false);
    check(local, Some("evil@localhost:3000"), false);
    check(local, Some("10.0.0.7:3000"), false);
    check(local, Some("127.0.0.2:3000"), false);
    check("127.0.0.2:3000", Some("127.0.0.2:3000"), true);
    check("127.0.0.2:3000", Some("127.0.0.3:3000"), false);
    check(local, Some(""), false);
    check(local, None, false);
    check("127.0.0.1:80", Some("localhost"), true);
    check("10.0.0.7:3000", Some("10.0.0.7:3000"), true);
    check("10.0.0.7:3000", Some("10.0.0.8:3000"), false);
    check("0.0.0.0:3000", Some("10.0.0.7:3000"), true);
    check("0.0.0.0:3000", Some("[fe80::1]:3000"), true);
    check("0.0.0.0:3000", Some("evil.test:3000"), false);
}

#[test]
fn foreign_origin_is_rejected_with_any_credentials() {
    for origin in [
        "http://evil.test",
        "null",
        "http://localhost:3000.evil.test",
        "http://localhost:3001",
        "http://localhost",
        "https://localhost:3000",
        "http://127.0.0.1:3000",
        "http://LOCALHOST:3000",
        "http://localhost:3000/",
        "https://friend.test.evil.test",
        "http://friend.test",
        "",
    ] {
        for (route, access) in [
            (RouteClass::Socket, RequestAccess::Read),
            (RouteClass::Api, RequestAccess::Read),
            (RouteClass::Api, RequestAccess::Write),
        ] {
            let with_cookie = RequestFacts { cookie: cookie(), secret: secret(), ..facts(route, access) };
            check(RequestFacts { origin: Some(origin), ..with_cookie }, foreign(origin));
            check(RequestFacts { origin: Some(origin), bearer: Some(TOKEN), ..facts(route, access) }, foreign(origin));
        }
    }
}

#[test]
fn credentials_are_checked_per_route_and_access() {
    let (cookie, secret) = (cookie(), secret());
    let (socket, read, write) = (
        facts(RouteClass::Socket, RequestAccess::Read),
        facts(RouteClass::Api, RequestAccess::Read),
        facts(RouteClass::Api, RequestAccess::Write),
    );
    let reject = AuthDecision::Reject;
    let (by_token, by_browser) = (AuthDecision::Pass(ClientProof::Token), AuthDecision::Pass(browser()));
    for any in [socket, read, write] {
        let own = RequestFacts { origin: Some(HERE), ..any };
        check(any, reject(AuthError::NoToken));
        check(RequestFacts { bearer: Some(TOKEN), ..any }, by_token.clone());
        check(RequestFacts { bearer: Some("wrong"), ..any }, reject(AuthError::WrongToken));
        check(RequestFacts { bearer: Some("wrong"), cookie, secret, ..own }, reject(AuthError::WrongToken));
        check(RequestFacts { cookie, secret, ..own }, by_browser.clone());
        check(RequestFacts { cookie, ..own }, reject(AuthError::NoSecret));
        check(RequestFacts { secret, ..own }, reject(AuthError::NoToken));
        check(RequestFacts { cookie: secret, secret, ..own }, reject(AuthError::WrongToken));
        check(RequestFacts { cookie, secret: cookie, ..own }, reject(AuthError::WrongToken));
        check(RequestFacts { cookie: Some("wrong"), secret, ..own }, reject(AuthError::WrongToken));
        check(RequestFacts { cookie, secret: Some(TOKEN), ..own }, reject(AuthError::WrongToken));
        check(own, reject(AuthError::NoToken));
    }
    check(RequestFacts { query: Some(TOKEN), ..socket }, by_token);
    check(RequestFacts { query: Some("wrong"), ..socket }, reject(AuthError::WrongToken));
    check(RequestFacts { query: Some(TOKEN), ..read }, reject(AuthError::NoToken));
    check(RequestFacts { cookie, secret, ..socket }, reject(AuthError::NoOrigin));
    check(RequestFacts { cookie, secret, ..write }, reject(AuthError::NoOrigin));
    check(RequestFacts { cookie, secret, ..read }, by_browser);
}

#[test]
fn page_of_another_port_cannot_use_the_cookie() {
    let read = RequestFacts { cookie: cookie(), secret: secret(), ..facts(RouteClass::Api, RequestAccess::Read) };
    check(RequestFacts { fetch_site: Some("same-origin"), ..read }, AuthDecision::Pass(browser()));
    check(RequestFacts { fetch_site: Some("none"), ..read }, AuthDecision::Pass(browser()));
    check(RequestFacts { fetch_site: Some("same-site"), ..read }, foreign("same-site"));
    check(RequestFacts { fetch_site: Some("cross-site"), ..read }, foreign("cross-site"));
}

#[test]
fn origin_has_the_scheme_and_port_of_the_request() {
    let read = RequestFacts { cookie: cookie(), secret: secret(), ..facts(RouteClass::Api, RequestAccess::Write) };
    let check = |host: &str, is_https: bool, origin: &str, expected: bool| {
        let facts = RequestFacts { host: Some(host), is_https, origin: Some(origin), ..read };
        let decision = auth("127.0.0.1:3000").authorize(&facts);
        assert_eq!(decision == AuthDecision::Pass(browser()), expected, "{host} {is_https} {origin}: {decision:?}");
    };
    check("localhost:8080", false, "http://localhost:8080", true);
    check("localhost:8080", false, "http://localhost:3000", false);
    check("localhost:8080", false, "https://localhost:8080", false);
    check("localhost:8080", true, "https://localhost:8080", true);
    check("localhost:8080", true, "http://localhost:8080", false);
    check("green.test", true, "https://green.test", true);
}

#[test]
fn ticket_admits_to_its_address_alone() {
    let auth = auth("127.0.0.1:3000");
    let of = |address: &str| auth.tickets().issue(address, auth.token_grant()).expect("random numbers");
    let check = |address: &str, ticket: &str, expected: AuthDecision| {
        let facts = RequestFacts {
            address,
            ticket: Some(ticket),
            fetch_site: Some("same-origin"),
            ..facts(RouteClass::Api, RequestAccess::Read)
        };
        assert_eq!(auth.authorize(&facts), expected, "{address}");
    };
    let (pass, rejected) = (AuthDecision::Pass(ClientProof::Ticket), AuthDecision::Reject(AuthError::BadTicket));
    let export = of("/api/sessions/A/export?format=md");
    check(&format!("/api/sessions/A/export?format=md&ticket={export}"), &export, pass.clone());
    check(&format!("/api/sessions/A/export?ticket={export}&format=md"), &export, pass);
    check(&format!("/api/sessions/A/export?ticket={export}"), &export, rejected.clone());
    check(&format!("/api/sessions/B/export?format=md&ticket={export}"), &export, rejected.clone());
    let elsewhere = of("/api/sessions/A/events");
    check(&format!("/api/sessions/A/events?ticket={elsewhere}"), &elsewhere, rejected);
    let cross_site = RequestFacts {
        address: "/api/sessions/A/export?format=md",
        ticket: Some(&export),
        fetch_site: Some("cross-site"),
        ..facts(RouteClass::Api, RequestAccess::Read)
    };
    assert_eq!(auth.authorize(&cross_site), foreign("cross-site"));
}

#[test]
fn sign_in_takes_json_of_the_own_page_or_of_a_script() {
    let sign_in = facts(RouteClass::SignIn, RequestAccess::Write);
    let pass = AuthDecision::Pass(ClientProof::None);
    check(sign_in, pass.clone());
    check(RequestFacts { origin: Some(HERE), ..sign_in }, pass);
    for body in [RequestBodyKind::None, RequestBodyKind::Other, RequestBodyKind::File] {
        check(RequestFacts { body, ..sign_in }, AuthDecision::Reject(AuthError::NotJson));
    }
    check(RequestFacts { origin: Some("http://evil.test"), ..sign_in }, foreign("http://evil.test"));
    let friend = RequestFacts { origin: Some("https://friend.test"), ..sign_in };
    let rejected = AuthError::Origin("https://friend.test".into());
    check(friend, AuthDecision::RejectCrossOrigin("https://friend.test".into(), rejected));
    check(facts(RouteClass::SignIn, RequestAccess::Read), AuthDecision::Reject(AuthError::NoToken));
}

#[test]
fn body_that_a_form_can_send_is_rejected() {
    let write = RequestFacts { bearer: Some(TOKEN), ..facts(RouteClass::Api, RequestAccess::Write) };
    check(RequestFacts { body: RequestBodyKind::Other, ..write }, AuthDecision::Reject(AuthError::NotJson));
    check(RequestFacts { body: RequestBodyKind::None, ..write }, AuthDecision::Pass(ClientProof::Token));
    check(RequestFacts { body: RequestBodyKind::File, ..write }, AuthDecision::Pass(ClientProof::Token));
    let page = RequestFacts { body: RequestBodyKind::File, origin: Some("https://evil.test"), ..write };
    check(page, AuthDecision::Reject(AuthError::Origin("https://evil.test".into())));
}

#[test]
fn pages_pass_and_their_link_signs_in() {
    let page = facts(RouteClass::Page, RequestAccess::Read);
    let pass = || AuthDecision::Pass(ClientProof::None);
    check(page, pass());
    check(RequestFacts { cookie: cookie(), secret: secret(), ..page }, pass());
    check(RequestFacts { cookie: cookie(), origin: Some("http://evil.test"), ..page }, pass());
    check(RequestFacts { cookie: Some("wrong"), bearer: Some("wrong"), ..page }, pass());
    check(RequestFacts { fetch_site: Some("cross-site"), ..page }, pass());
    check(RequestFacts { query: Some(TOKEN), ..page }, AuthDecision::SignIn);
    check(RequestFacts { query: Some("wrong"), ..page }, AuthDecision::Reject(AuthError::WrongToken));
    check(facts(RouteClass::Page, RequestAccess::Write), AuthDecision::Reject(AuthError::NoToken));
    check(facts(RouteClass::Health, RequestAccess::Read), pass());
}

#[test]
fn cookie_names_the_data_directory_and_not_the_port() {
    let name = |bound: &str, is_https| auth(bound).cookie_name(is_https);
    assert_eq!(name("127.0.0.1:3000", false), name("127.0.0.1:4000", false));
    assert_eq!(name("127.0.0.1:3000", true), format!("__Host-{}", name("127.0.0.1:3000", false)));
    assert!(name("127.0.0.1:3000", false).contains(BROWSERS.0.server_id()));
}

#[test]
fn allowed_origin_can_read_answers_and_errors() {
    let allowed = Some("https://friend.test");
    let api = facts(RouteClass::Api, RequestAccess::Read);
    check(
        RequestFacts { origin: allowed, bearer: Some(TOKEN), ..api },
        AuthDecision::PassCrossOrigin("https://friend.test".into(), ClientProof::Token),
    );
    let rejected = |error| AuthDecision::RejectCrossOrigin("https://friend.test".into(), error);
    check(RequestFacts { origin: allowed, ..api }, rejected(AuthError::NoToken));
    check(RequestFacts { origin: allowed, bearer: Some("wrong"), ..api }, rejected(AuthError::WrongToken));
    let form = RequestFacts {
        origin: allowed,
        bearer: Some(TOKEN),
        body: RequestBodyKind::Other,
        ..facts(RouteClass::Api, RequestAccess::Write)
    };
    check(form, rejected(AuthError::NotJson));
    let elsewhere = RequestFacts { origin: allowed, host: Some("evil.test"), ..api };
    check(elsewhere, AuthDecision::Reject(AuthError::Host("evil.test".into())));
    check(
        RequestFacts { origin: allowed, ..facts(RouteClass::Api, RequestAccess::Preflight) },
        AuthDecision::AnswerPreflight("https://friend.test".into()),
    );
    check(
        RequestFacts { origin: Some("http://evil.test"), ..facts(RouteClass::Api, RequestAccess::Preflight) },
        foreign("http://evil.test"),
    );
    check(facts(RouteClass::Api, RequestAccess::Preflight), AuthDecision::Reject(AuthError::NoToken));
}
