//! TLS of the listener: reads certificate chain and key.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ServerConfig,
    crypto::ring,
    pki_types::{
        CertificateDer, PrivateKeyDer,
        pem::{Error as PemError, PemObject},
    },
};

/// Reason for an unusable certificate or key. The text names the file and the way out.
#[derive(Debug, thiserror::Error)]
pub enum TlsFileError {
    #[error(
        "cannot read `{path}` of `server.tls`: {source}; it must be a {kind} in PEM format that this user can read"
    )]
    Unreadable {
        path: PathBuf,
        kind: &'static str,
        #[source]
        source: PemError,
    },
    #[error("`{path}` of `server.tls` contains no certificate; it must be a certificate chain in PEM format")]
    NoCertificate { path: PathBuf },
    #[error("`{key}` of `server.tls` does not fit `{cert}`: {source}; both must come from one certificate request")]
    Mismatch {
        cert: PathBuf,
        key: PathBuf,
        #[source]
        source: rustls::Error,
    },
}

/// Reads a certificate chain and its key, both in PEM format.
///
/// # Errors
/// Names the file that is missing, unreadable or not in PEM format, or a key of another
/// certificate.
pub fn tls_config(cert: &Path, key: &Path) -> Result<Arc<ServerConfig>, TlsFileError> {
    let unreadable = |path: &Path, kind| {
        let path = path.to_owned();
        move |source| TlsFileError::Unreadable { path, kind, source }
    };
    let chain: Vec<_> = CertificateDer::pem_file_iter(cert)
        .and_then(Iterator::collect)
        .map_err(unreadable(cert, "certificate chain"))?;
    if chain.is_empty() {
        return Err(TlsFileError::NoCertificate { path: cert.to_owned() });
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(unreadable(key, "private key"))?;
    let mismatch = |source| TlsFileError::Mismatch { cert: cert.to_owned(), key: key.to_owned(), source };
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(mismatch)?
        .with_no_client_auth()
        .with_single_cert(chain, private)
        .map_err(mismatch)?;
    // A browser that may choose HTTP/2 would have to be served with it.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
