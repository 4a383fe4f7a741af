//! Certificate of a test, signed by itself, and clients that accept it.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, RootCertStore,
    crypto::ring,
    pki_types::{CertificateDer, pem::PemObject},
};

/// Certificate for `localhost`, `127.0.0.1` and `greenroom.example`, with its key.
#[derive(Clone)]
pub struct TestCertificate {
    pub cert_pem: String,
    pub key_pem: String,
}

impl TestCertificate {
    #[expect(clippy::new_without_default, reason = "a generated key is no default")]
    pub fn new() -> TestCertificate {
        let names = ["localhost", "127.0.0.1", "greenroom.example"].map(String::from);
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(names).expect("the names are valid");
        TestCertificate { cert_pem: cert.pem(), key_pem: signing_key.serialize_pem() }
    }

    /// Writes both files into `dir`. Returns the paths of certificate and key.
    pub fn write(&self, dir: &Path) -> (PathBuf, PathBuf) {
        let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
        fs::write(&cert, &self.cert_pem).expect("the certificate is written");
        fs::write(&key, &self.key_pem).expect("the key is written");
        (cert, key)
    }

    /// Returns the configuration of a client that accepts this certificate only.
    pub fn client_config(&self) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.cert_pem.as_bytes()).expect("PEM")).expect("a certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("the provider has ciphers");
        Arc::new(config.with_root_certificates(roots).with_no_client_auth())
    }

    /// Returns an HTTP client that follows no redirect and accepts this certificate only.
    pub fn http_client(&self) -> reqwest::Client {
        let certificate = reqwest::Certificate::from_pem(self.cert_pem.as_bytes()).expect("PEM");
        let client = reqwest::Client::builder().tls_certs_only([certificate]);
        client.redirect(reqwest::redirect::Policy::none()).build().expect("the client can be built")
    }
}
