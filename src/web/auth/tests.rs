use super::*;
use crate::data::BearerToken;

const TOKEN: &str = "0123456789abcdef";
const HERE: &str = "http://localhost:3000";

fn auth(bound: &str) -> Auth {
    Auth {
        token: CurrentToken::fixed(BearerToken::new(TOKEN), &Default::default()),
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
        assert_eq!(decision == AuthDecision::Pass, expected, "{host:?} at {bound}");
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
    check(local, Some("localhost"), false);
    check(local, Some("localhost:3001"), false);
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
            let with_cookie = RequestFacts {
                cookie: Some(BearerToken::new(TOKEN).cookie().to_owned().leak()),
                ..facts(route, access)
            };
            check(RequestFacts { origin: Some(origin), ..with_cookie }, foreign(origin));
            check(RequestFacts { origin: Some(origin), bearer: Some(TOKEN), ..facts(route, access) }, foreign(origin));
        }
    }
}

#[test]
fn credentials_are_checked_per_route_and_access() {
    let token = BearerToken::new(TOKEN);
    let cookie = Some(token.cookie());
    let (socket, read, write) = (
        facts(RouteClass::Socket, RequestAccess::Read),
        facts(RouteClass::Api, RequestAccess::Read),
        facts(RouteClass::Api, RequestAccess::Write),
    );
    let reject = AuthDecision::Reject;
    for any in [socket, read, write] {
        check(any, reject(AuthError::NoToken));
        check(RequestFacts { bearer: Some(TOKEN), ..any }, AuthDecision::Pass);
        check(RequestFacts { bearer: Some("wrong"), ..any }, reject(AuthError::WrongToken));
        check(RequestFacts { bearer: Some("wrong"), cookie, origin: Some(HERE), ..any }, reject(AuthError::WrongToken));
        check(RequestFacts { cookie, origin: Some(HERE), ..any }, AuthDecision::Pass);
        check(RequestFacts { cookie: Some("wrong"), origin: Some(HERE), ..any }, reject(AuthError::WrongToken));
        check(RequestFacts { cookie: Some(TOKEN), origin: Some(HERE), ..any }, reject(AuthError::WrongToken));
        check(RequestFacts { origin: Some(HERE), ..any }, reject(AuthError::NoToken));
    }
    check(RequestFacts { query: Some(TOKEN), ..socket }, AuthDecision::Pass);
    check(RequestFacts { query: Some("wrong"), ..socket }, reject(AuthError::WrongToken));
    check(RequestFacts { query: Some(TOKEN), ..read }, reject(AuthError::NoToken));
    check(RequestFacts { cookie, ..socket }, reject(AuthError::CookieAlone));
    check(RequestFacts { cookie, ..write }, reject(AuthError::CookieAlone));
    check(RequestFacts { cookie, ..read }, AuthDecision::Pass);
}

#[test]
fn page_of_another_port_cannot_use_the_cookie() {
    let token = BearerToken::new(TOKEN);
    let read = RequestFacts { cookie: Some(token.cookie()), ..facts(RouteClass::Api, RequestAccess::Read) };
    check(RequestFacts { fetch_site: Some("same-origin"), ..read }, AuthDecision::Pass);
    check(RequestFacts { fetch_site: Some("none"), ..read }, AuthDecision::Pass);
    check(RequestFacts { fetch_site: Some("same-site"), ..read }, foreign("same-site"));
    check(RequestFacts { fetch_site: Some("cross-site"), ..read }, foreign("cross-site"));
}

#[test]
fn body_that_a_form_can_send_is_rejected() {
    let write = RequestFacts { bearer: Some(TOKEN), ..facts(RouteClass::Api, RequestAccess::Write) };
    check(RequestFacts { body: RequestBodyKind::Other, ..write }, AuthDecision::Reject(AuthError::NotJson));
    check(RequestFacts { body: RequestBodyKind::None, ..write }, AuthDecision::Pass);
    check(RequestFacts { body: RequestBodyKind::File, ..write }, AuthDecision::Pass);
    let page = RequestFacts { body: RequestBodyKind::File, origin: Some("https://evil.test"), ..write };
    check(page, AuthDecision::Reject(AuthError::Origin("https://evil.test".into())));
}

#[test]
fn pages_pass_and_credentials_add_data() {
    let page = facts(RouteClass::Page, RequestAccess::Read);
    check(page, AuthDecision::Pass);
    let token = BearerToken::new(TOKEN);
    let cookie = Some(token.cookie());
    for fetch_site in [None, Some("none"), Some("same-origin")] {
        check(RequestFacts { cookie, fetch_site, ..page }, AuthDecision::PassAuthenticated);
    }
    for fetch_site in [Some("cross-site"), Some("same-site"), Some("")] {
        check(RequestFacts { cookie, fetch_site, ..page }, AuthDecision::Pass);
    }
    check(RequestFacts { cookie, origin: Some("http://evil.test"), ..page }, AuthDecision::Pass);
    check(RequestFacts { cookie: Some("wrong"), ..page }, AuthDecision::Pass);
    check(RequestFacts { cookie, bearer: Some("wrong"), ..page }, AuthDecision::Pass);
    check(RequestFacts { bearer: Some(TOKEN), ..page }, AuthDecision::PassAuthenticated);
    check(RequestFacts { fetch_site: Some("cross-site"), ..page }, AuthDecision::Pass);
    check(RequestFacts { query: Some(TOKEN), ..page }, AuthDecision::SignIn);
    check(RequestFacts { query: Some("wrong"), ..page }, AuthDecision::Reject(AuthError::WrongToken));
    check(facts(RouteClass::Page, RequestAccess::Write), AuthDecision::Reject(AuthError::NoToken));
    check(facts(RouteClass::Health, RequestAccess::Read), AuthDecision::Pass);
}

#[test]
fn allowed_origin_can_read_answers_and_errors() {
    let allowed = Some("https://friend.test");
    let api = facts(RouteClass::Api, RequestAccess::Read);
    check(
        RequestFacts { origin: allowed, bearer: Some(TOKEN), ..api },
        AuthDecision::PassCrossOrigin("https://friend.test".into()),
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
