//! TLS without files of the image: any image works, also one without certificates.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, crypto::ring};

/// Configuration that trusts the roots that browsers trust.
pub(crate) fn web_roots() -> ClientConfig {
    config(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
}

/// Configuration that trusts no root, for a client that speaks plain HTTP to the gateway's socket.
pub(crate) fn no_roots() -> ClientConfig {
    config(RootCertStore::empty())
}

fn config(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("ring has cipher suites for the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}
