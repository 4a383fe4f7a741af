//! TLS without anything of the image: any image has to do, also one without certificates.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, crypto::ring};

/// Trusts the roots that browsers trust.
pub(crate) fn web_roots() -> ClientConfig {
    config(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
}

/// Trusts nobody: for a client that speaks plain HTTP to the gateway's socket and never TLS.
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
