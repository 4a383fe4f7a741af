use super::*;
use crate::data::Token;

const TOKEN: &str = "0123456789abcdef";
const HERE: &str = "http://localhost:3000";

fn auth(bound: &str) -> Auth {
    Auth {
        token: TokenInForce::always(Token::new(TOKEN), &Default::default()),
        bound: bound.parse().expect("an address"),
        hosts: vec!["green.test".into(), "box.test:81".into()],
        origins: vec!["https://friend.test".into(), "https://green.test".into()],
    }
}

fn facts(door: Door, act: Act) -> Facts<'static> {
    Facts {
        door,
        act,
        host: Some("localhost:3000"),
        origin: None,
        fetch_site: None,
        bearer: None,
        query: None,
        cookie: None,
        body: Body::Json,
    }
}

fn check(facts: Facts<'_>, expected: Verdict) {
    assert_eq!(auth("127.0.0.1:3000").judge(&facts), expected, "{facts:?}");
}

fn foreign(origin: &str) -> Verdict {
    Verdict::Refuse(Denial::Origin(origin.into()))
}

#[test]
fn hosts() {
    let check = |bound: &str, host: Option<&str>, expected: bool| {
        let verdict = auth(bound).judge(&Facts { host, ..facts(Door::Health, Act::Read) });
        assert_eq!(verdict == Verdict::Pass, expected, "{host:?} at {bound}");
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
fn a_foreign_page_opens_no_socket_whatever_it_shows() {
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
        for (door, act) in [(Door::Socket, Act::Read), (Door::Api, Act::Read), (Door::Api, Act::Write)] {
            let with_cookie = Facts { cookie: Some(Token::new(TOKEN).cookie().to_owned().leak()), ..facts(door, act) };
            check(Facts { origin: Some(origin), ..with_cookie }, foreign(origin));
            check(Facts { origin: Some(origin), bearer: Some(TOKEN), ..facts(door, act) }, foreign(origin));
        }
    }
}

#[test]
fn credentials() {
    let token = Token::new(TOKEN);
    let cookie = Some(token.cookie());
    let (socket, read, write) =
        (facts(Door::Socket, Act::Read), facts(Door::Api, Act::Read), facts(Door::Api, Act::Write));
    let refuse = Verdict::Refuse;
    for any in [socket, read, write] {
        check(any, refuse(Denial::NoToken));
        check(Facts { bearer: Some(TOKEN), ..any }, Verdict::Pass);
        check(Facts { bearer: Some("wrong"), ..any }, refuse(Denial::WrongToken));
        check(Facts { bearer: Some("wrong"), cookie, origin: Some(HERE), ..any }, refuse(Denial::WrongToken));
        check(Facts { cookie, origin: Some(HERE), ..any }, Verdict::Pass);
        check(Facts { cookie: Some("wrong"), origin: Some(HERE), ..any }, refuse(Denial::WrongToken));
        check(Facts { cookie: Some(TOKEN), origin: Some(HERE), ..any }, refuse(Denial::WrongToken));
        check(Facts { origin: Some(HERE), ..any }, refuse(Denial::NoToken));
    }
    check(Facts { query: Some(TOKEN), ..socket }, Verdict::Pass);
    check(Facts { query: Some("wrong"), ..socket }, refuse(Denial::WrongToken));
    check(Facts { query: Some(TOKEN), ..read }, refuse(Denial::NoToken));
    check(Facts { cookie, ..socket }, refuse(Denial::CookieAlone));
    check(Facts { cookie, ..write }, refuse(Denial::CookieAlone));
    check(Facts { cookie, ..read }, Verdict::Pass);
}

#[test]
fn a_page_of_another_port_cannot_ride_on_the_cookie() {
    let token = Token::new(TOKEN);
    let read = Facts { cookie: Some(token.cookie()), ..facts(Door::Api, Act::Read) };
    check(Facts { fetch_site: Some("same-origin"), ..read }, Verdict::Pass);
    check(Facts { fetch_site: Some("none"), ..read }, Verdict::Pass);
    check(Facts { fetch_site: Some("same-site"), ..read }, foreign("same-site"));
    check(Facts { fetch_site: Some("cross-site"), ..read }, foreign("cross-site"));
}

#[test]
fn a_body_that_a_form_could_send_changes_nothing() {
    let write = Facts { bearer: Some(TOKEN), ..facts(Door::Api, Act::Write) };
    check(Facts { body: Body::Other, ..write }, Verdict::Refuse(Denial::NotJson));
    check(Facts { body: Body::None, ..write }, Verdict::Pass);
    check(Facts { body: Body::File, ..write }, Verdict::Pass);
    let page = Facts { body: Body::File, origin: Some("https://evil.test"), ..write };
    check(page, Verdict::Refuse(Denial::Origin("https://evil.test".into())));
}

#[test]
fn pages() {
    let page = facts(Door::Page, Act::Read);
    check(page, Verdict::Pass);
    let token = Token::new(TOKEN);
    let cookie = Some(token.cookie());
    for fetch_site in [None, Some("none"), Some("same-origin")] {
        check(Facts { cookie, fetch_site, ..page }, Verdict::PassInside);
    }
    for fetch_site in [Some("cross-site"), Some("same-site"), Some("")] {
        check(Facts { cookie, fetch_site, ..page }, Verdict::Pass);
    }
    check(Facts { cookie, origin: Some("http://evil.test"), ..page }, Verdict::Pass);
    check(Facts { cookie: Some("wrong"), ..page }, Verdict::Pass);
    check(Facts { cookie, bearer: Some("wrong"), ..page }, Verdict::Pass);
    check(Facts { bearer: Some(TOKEN), ..page }, Verdict::PassInside);
    check(Facts { fetch_site: Some("cross-site"), ..page }, Verdict::Pass);
    check(Facts { query: Some(TOKEN), ..page }, Verdict::SignIn);
    check(Facts { query: Some("wrong"), ..page }, Verdict::Refuse(Denial::WrongToken));
    check(facts(Door::Page, Act::Write), Verdict::Refuse(Denial::NoToken));
    check(facts(Door::Health, Act::Read), Verdict::Pass);
}

#[test]
fn friends() {
    let friend = Some("https://friend.test");
    let api = facts(Door::Api, Act::Read);
    check(Facts { origin: friend, bearer: Some(TOKEN), ..api }, Verdict::PassTo("https://friend.test".into()));
    let told = |denial| Verdict::RefuseTo("https://friend.test".into(), denial);
    check(Facts { origin: friend, ..api }, told(Denial::NoToken));
    check(Facts { origin: friend, bearer: Some("wrong"), ..api }, told(Denial::WrongToken));
    let form = Facts { origin: friend, bearer: Some(TOKEN), body: Body::Other, ..facts(Door::Api, Act::Write) };
    check(form, told(Denial::NotJson));
    let elsewhere = Facts { origin: friend, host: Some("evil.test"), ..api };
    check(elsewhere, Verdict::Refuse(Denial::Host("evil.test".into())));
    check(Facts { origin: friend, ..facts(Door::Api, Act::Ask) }, Verdict::Answer("https://friend.test".into()));
    check(Facts { origin: Some("http://evil.test"), ..facts(Door::Api, Act::Ask) }, foreign("http://evil.test"));
    check(facts(Door::Api, Act::Ask), Verdict::Refuse(Denial::NoToken));
}
