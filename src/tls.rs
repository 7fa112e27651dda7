//! Verified TLS for every client in the process. There is no switch to turn the verification off.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

/// Trusts the system's certificate authorities and, if given, those of a PEM file.
pub fn client_config(ca_file: Option<&Path>) -> anyhow::Result<rustls::ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        let certificates = CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .with_context(|| format!("{} is not a PEM file of certificates", path.display()))?;
        for certificate in certificates {
            roots.add(certificate).with_context(|| format!("{} holds an unusable certificate", path.display()))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    Ok(rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .context("no TLS version in common with the provider")?
        .with_root_certificates(roots)
        .with_no_client_auth())
}
