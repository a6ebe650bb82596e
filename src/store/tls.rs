//! Encryption of sessions, as strict as the target asks for.

use crate::config::{Secured, Target, Tls};
use crate::error::codes::CERTIFICATE_FILE;
use crate::error::{Error, Kind, Result};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// The TLS connector for the driver.
pub(super) fn connector(target: &Target) -> Result<MakeRustlsConnect> {
    Ok(MakeRustlsConnect::new(client_config(&target.secured)?))
}

fn client_config(secured: &Secured) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::config(format!("tls: {e}")))?;
    let builder = match (secured.tls, &secured.root_cert) {
        (Tls::VerifyFull, Some(path)) => builder.with_root_certificates(roots(path)?),
        (Tls::VerifyCa, Some(path)) => {
            let by_chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots(path)?), provider);
            let by_chain = by_chain.build().map_err(|e| wrong("sslrootcert", path, &e))?;
            builder.dangerous().with_custom_certificate_verifier(Arc::new(ByChain(by_chain)))
        }
        // The configuration holds a root wherever a server is verified.
        (Tls::VerifyFull | Tls::VerifyCa, None) => {
            return Err(Error::new(Kind::Internal, "a server is to be verified without a root certificate"));
        }
        _ => builder.dangerous().with_custom_certificate_verifier(Arc::new(Unchecked(provider))),
    };
    let Some((certificate, key)) = &secured.client else { return Ok(builder.with_no_client_auth()) };
    let chain = certificates("sslcert", certificate)?;
    let secret = PrivateKeyDer::from_pem_file(key).map_err(|e| wrong("sslkey", key, &e))?;
    builder.with_client_auth_cert(chain, secret).map_err(|e| wrong("sslkey", key, &e))
}

fn wrong(option: &str, path: &Path, e: &dyn std::fmt::Display) -> Error {
    Error::of(&CERTIFICATE_FILE, format!("{option} {}: {e}", path.display()))
}

fn certificates(option: &str, path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let read = CertificateDer::pem_file_iter(path).map_err(|e| wrong(option, path, &e))?;
    let found = read.collect::<std::result::Result<Vec<_>, _>>().map_err(|e| wrong(option, path, &e))?;
    if found.is_empty() {
        return Err(wrong(option, path, &"the file holds no certificate"));
    }
    Ok(found)
}

/// A system's file may hold a root that this library cannot use. The others serve.
fn roots(path: &Path) -> Result<RootCertStore> {
    let mut store = RootCertStore::empty();
    let (usable, _) = store.add_parsable_certificates(certificates("sslrootcert", path)?);
    if usable == 0 {
        return Err(wrong("sslrootcert", path, &"the file holds no usable certificate"));
    }
    Ok(store)
}

/// `verify-ca`, and `require` with a root certificate: the chain is verified and the name is not, as libpq does.
#[derive(Debug)]
struct ByChain(Arc<WebPkiServerVerifier>);

impl ServerCertVerifier for ByChain {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        use rustls::CertificateError::{NotValidForName, NotValidForNameContext};
        // The chain is verified before the name.
        match self.0.verify_server_cert(end, between, name, ocsp, now) {
            Err(rustls::Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. })) => {
                Ok(ServerCertVerified::assertion())
            }
            verified => verified,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.0.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_verify_schemes()
    }
}

/// `sslmode=allow`, `prefer`, and `require` without a root certificate, encrypt without verifying the server, as libpq does.
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
