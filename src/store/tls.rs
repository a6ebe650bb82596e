//! Encryption of sessions, as strict as the target asks for.

use crate::config::{Target, Tls};
use crate::error::{Error, Result};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// Whether a session is not encrypted: because TLS is disabled, or because it uses a Unix socket.
pub(super) fn is_plain(target: &Target) -> bool {
    target.tls == Tls::Disable || target.host().starts_with('/')
}

/// The TLS connector for the driver.
pub(super) fn connector(target: &Target) -> Result<MakeRustlsConnect> {
    Ok(MakeRustlsConnect::new(client_config(target)?))
}

fn client_config(target: &Target) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::config(format!("tls: {e}")))?;
    if target.tls == Tls::VerifyFull {
        return Ok(builder.with_root_certificates(roots(target)?).with_no_client_auth());
    }
    let unchecked = Arc::new(Unchecked(provider));
    Ok(builder.dangerous().with_custom_certificate_verifier(unchecked).with_no_client_auth())
}

fn roots(target: &Target) -> Result<RootCertStore> {
    let Some(path) = &target.root_cert else {
        return Ok(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() });
    };
    let wrong = |e: &dyn std::fmt::Display| Error::config(format!("sslrootcert {}: {e}", path.display()));
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| wrong(&e))? {
        store.add(certificate.map_err(|e| wrong(&e))?).map_err(|e| wrong(&e))?;
    }
    if store.is_empty() {
        return Err(wrong(&"the file holds no certificate"));
    }
    Ok(store)
}

/// `sslmode=prefer`, and `require` without a root certificate, encrypt without verifying the server, as libpq does.
#[derive(Debug)]
struct Unchecked(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for Unchecked {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
