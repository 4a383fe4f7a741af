//! Settings of the way between clients and server: base path, trusted proxies, TLS.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use ipnet::IpNet;
use serde::{
    Deserialize, Deserializer,
    de::{self, IntoDeserializer},
};

use super::ServerConfig;

impl ServerConfig {
    /// Returns the address of this server's pages without a final slash, such as
    /// `https://127.0.0.1:3000/greenroom`.
    pub fn address(&self, bound: SocketAddr) -> String {
        let scheme = match self.tls {
            TlsSetting::Off => "http",
            TlsSetting::Files(_) => "https",
        };
        format!("{scheme}://{bound}{}", self.base_path.as_str())
    }
}

/// First segments of the server's own addresses. A base path that begins with one would hide them.
const OWN_SEGMENTS: [&str; 8] = ["admin", "api", "assets", "healthz", "metrics", "readyz", "sessions", "ws"];

/// Path under which a proxy offers this server, such as `/greenroom`. Empty: the root.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BasePath(String);

impl BasePath {
    /// Returns the path without a final slash. Empty for the root.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the rest of `path` behind the base path, with its leading slash.
    ///
    /// `None` if the base path is the root, or if `path` lies elsewhere.
    pub fn strip<'a>(&self, path: &'a str) -> Option<&'a str> {
        match path.strip_prefix(&self.0).filter(|_| !self.0.is_empty())? {
            "" => Some("/"),
            rest => rest.starts_with('/').then_some(rest),
        }
    }
}

impl<'de> Deserialize<'de> for BasePath {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<BasePath, D::Error> {
        let text = String::deserialize(from)?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_~.".contains(&b);
        let is_segment = |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(plain);
        let Some(rest) = text.strip_prefix('/') else {
            return match text.is_empty() {
                true => Ok(BasePath::default()),
                false => Err(de::Error::custom("must begin with `/`, such as `/greenroom`; empty: the root")),
            };
        };
        if !rest.split('/').all(is_segment) {
            return Err(de::Error::custom(
                "must be a path such as `/greenroom`, without a final slash (letters, digits, `-._~`); empty: the root",
            ));
        }
        match rest.split('/').find(|segment| OWN_SEGMENTS.contains(segment)) {
            Some(own) => {
                Err(de::Error::custom(format!("must not contain `{own}`, which begins an address of the server")))
            }
            None => Ok(BasePath(text)),
        }
    }
}

/// Proxies whose `X-Forwarded-*` headers are believed: addresses and networks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TrustedProxies(Vec<IpNet>);

impl TrustedProxies {
    /// Returns true if no proxy is trusted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns true if the proxy at `address` is trusted. An IPv4 address in IPv6 form counts as
    /// IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(&address))
    }
}

impl<'de> Deserialize<'de> for TrustedProxies {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TrustedProxies, D::Error> {
        let parse = |text: &String| match text.parse::<IpAddr>() {
            Ok(address) => Ok(IpNet::from(address)),
            Err(_) => text.parse::<IpNet>().map_err(|_| {
                de::Error::custom(format!(
                    "`{text}` must be an IP address or a network, such as `127.0.0.1` or `10.0.0.0/8`"
                ))
            }),
        };
        Vec::<String>::deserialize(from)?.iter().map(parse).collect::<Result<_, _>>().map(TrustedProxies)
    }
}

/// TLS of the server: `"off"`, or the files of certificate chain and key in PEM format.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TlsSetting {
    #[default]
    Off,
    Files(TlsFiles),
}

/// Files of a TLS server, in PEM format.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TlsFiles {
    /// Certificate chain, the server's own certificate first.
    pub cert: PathBuf,
    /// Private key of the first certificate.
    pub key: PathBuf,
}

impl<'de> Deserialize<'de> for TlsSetting {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TlsSetting, D::Error> {
        let form =
            || de::Error::custom("must be `off`, or `{ cert = \"…\", key = \"…\" }` with two files in PEM format");
        let table = match toml::Value::deserialize(from)? {
            toml::Value::String(text) if text == "off" => return Ok(TlsSetting::Off),
            // A variable of the environment is always a string.
            toml::Value::String(text) if text.starts_with('{') => {
                let parsed = toml::from_str::<toml::Table>(&format!("tls = {text}"));
                parsed.ok().and_then(|mut table| table.remove("tls")).ok_or_else(form)?
            }
            toml::Value::Table(table) => toml::Value::Table(table),
            _ => return Err(form()),
        };
        let files = TlsFiles::deserialize(table.into_deserializer()).map_err(|_| form())?;
        if files.cert.as_os_str().is_empty() || files.key.as_os_str().is_empty() {
            return Err(form());
        }
        Ok(TlsSetting::Files(files))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: de::DeserializeOwned>(toml: &str) -> Result<T, String> {
        let value = toml::from_str::<toml::Table>(&format!("v = {toml}")).expect("the text is TOML")["v"].clone();
        value.try_into().map_err(|e: toml::de::Error| e.message().to_owned())
    }

    #[test]
    fn base_paths_are_parsed() {
        let check = |text: &str, reason: Option<&str>| match (read::<BasePath>(&format!("{text:?}")), reason) {
            (Ok(path), None) => assert_eq!(path.as_str(), text),
            (Err(error), Some(part)) => assert!(error.contains(part), "{text}: {error}"),
            (got, expected) => panic!("{text}: {got:?}, expected {expected:?}"),
        };
        check("", None);
        check("/greenroom", None);
        check("/tools/green-room_1.x~", None);
        check("greenroom", Some("must begin with `/`"));
        for text in ["/", "/a/", "//a", "/a//b", "/a b", "/a?b", "/ä", "/../a", "/.", "/%61", "/a\"b"] {
            check(text, Some("without a final slash"));
        }
        check("/api", Some("must not contain `api`"));
        check("/tools/sessions", Some("must not contain `sessions`"));
    }

    #[test]
    fn base_path_is_stripped_at_a_slash() {
        let check = |base: &str, path: &str, expected: Option<&str>| {
            assert_eq!(BasePath(base.to_owned()).strip(path), expected, "{base} {path}");
        };
        check("", "/api", None);
        check("/a", "/a", Some("/"));
        check("/a", "/a/", Some("/"));
        check("/a", "/a/ws", Some("/ws"));
        check("/a", "/a//evil.test", Some("//evil.test"));
        check("/a", "/ab", None);
        check("/a", "/b/a", None);
        check("/a/b", "/a", None);
    }

    #[test]
    fn proxies_are_addresses_and_networks() {
        let check = |list: &str, address: &str, expected: bool| {
            let proxies = read::<TrustedProxies>(list).expect("the list is valid");
            assert_eq!(proxies.contains(address.parse().expect("an address")), expected, "{list} {address}");
        };
        check("[]", "127.0.0.1", false);
        check("['127.0.0.1']", "127.0.0.1", true);
        check("['127.0.0.1']", "::ffff:127.0.0.1", true);
        check("['127.0.0.1']", "127.0.0.2", false);
        check("['127.0.0.1']", "::1", false);
        check("['::1', '10.0.0.0/8']", "10.9.8.7", true);
        check("['10.0.0.0/8']", "11.0.0.1", false);
        check("['fd00::/8']", "fd12::3", true);
        for wrong in ["['10.0.0.0/33']", "['proxy']", "['10.0.0']", "['']"] {
            let error = read::<TrustedProxies>(wrong).expect_err("the list is rejected");
            assert!(error.contains("must be an IP address or a network"), "{error}");
        }
    }

    #[test]
    fn tls_is_off_or_two_files() {
        let files = TlsSetting::Files(TlsFiles { cert: "/c".into(), key: "/k".into() });
        let check = |toml: &str, expected: Option<&TlsSetting>| {
            let read = read::<TlsSetting>(toml);
            assert_eq!(read.as_ref().ok(), expected, "{toml}: {read:?}");
        };
        check("'off'", Some(&TlsSetting::Off));
        check("{ cert = '/c', key = '/k' }", Some(&files));
        check(r#"'{ cert = "/c", key = "/k" }'"#, Some(&files));
        for wrong in ["'on'", "true", "{}", "{ cert = '/c' }", "{ cert = '/c', key = '' }", "'{ cert'", "''"] {
            check(wrong, None);
        }
        check("{ cert = '/c', key = '/k', more = 1 }", None);
    }
}
