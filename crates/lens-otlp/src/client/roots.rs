//! Whom an `https` endpoint is trusted by when no file of certificates is set for it: whom the machine trusts.
//!
//! First what `SSL_CERT_FILE` and `SSL_CERT_DIR` name, as for OpenSSL; else the first bundle of the usual places; else,
//! as in a container without one, the roots that are built in. What cannot be read is passed over.

use std::ffi::OsString;
use std::path::Path;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use tokio_rustls::rustls::RootCertStore;

const CERT_FILE: &str = "SSL_CERT_FILE";
const CERT_DIR: &str = "SSL_CERT_DIR";

/// Debian and Arch, Fedora, openSUSE, RHEL 7, RHEL, Alpine.
const BUNDLES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/tls/cacert.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The trusted roots; `variable` reads the environment.
pub(super) fn trusted(variable: impl Fn(&str) -> Option<OsString>) -> RootCertStore {
    let bundles: Vec<&Path> = BUNDLES.iter().map(Path::new).collect();
    trusted_among(variable, &bundles)
}

fn trusted_among(variable: impl Fn(&str) -> Option<OsString>, bundles: &[&Path]) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let named = |name| variable(name).filter(|value| !value.is_empty());
    if let Some(file) = named(CERT_FILE) {
        add_file(&mut roots, Path::new(&file));
    }
    for folder in named(CERT_DIR).iter().flat_map(std::env::split_paths) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().filter_map(Result::ok);
        entries.for_each(|entry| add_file(&mut roots, &entry.path()));
    }
    for bundle in bundles {
        if !roots.is_empty() {
            return roots;
        }
        add_file(&mut roots, bundle);
    }
    if roots.is_empty() {
        roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
    }
    roots
}

fn add_file(roots: &mut RootCertStore, path: &Path) {
    let certificates = CertificateDer::pem_file_iter(path).into_iter().flatten();
    roots.add_parsable_certificates(certificates.filter_map(Result::ok));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("lens-roots-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    fn write_root(path: &Path) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let parameters = rcgen::CertificateParams::new(vec!["x".to_owned()]).expect("parameters");
        let certificate = parameters.self_signed(&key).expect("a certificate");
        std::fs::write(path, certificate.pem()).expect("written");
    }

    #[test]
    fn what_the_variables_name_comes_before_bundles_and_these_before_what_is_built_in() {
        let folder = folder("order");
        let (file, bundle) = (folder.join("file.pem"), folder.join("bundle.pem"));
        let certificates = folder.join("certificates");
        std::fs::create_dir(&certificates).expect("a folder");
        for path in [&file, &bundle, &certificates.join("a"), &certificates.join("b")] {
            write_root(path);
        }
        std::fs::write(certificates.join("README"), "no certificate").expect("written");
        let count = |variables: &[(&str, &Path)], bundles: &[&Path]| {
            let variable = |name: &str| {
                let found = variables.iter().find(|(known, _)| *known == name);
                found.map(|(_, path)| path.as_os_str().to_owned())
            };
            trusted_among(variable, bundles).len()
        };
        let built_in = webpki_roots::TLS_SERVER_ROOTS.len();
        assert_eq!(count(&[], &[]), built_in);
        assert_eq!(count(&[], &[Path::new("/not/there"), &bundle]), 1);
        assert_eq!(count(&[(CERT_FILE, &file)], &[&bundle]), 1);
        assert_eq!(count(&[(CERT_DIR, &certificates)], &[&bundle]), 2);
        assert_eq!(count(&[(CERT_FILE, &file), (CERT_DIR, &certificates)], &[&bundle]), 3);
        let stale = Path::new("/not/there");
        assert_eq!(count(&[(CERT_FILE, stale)], &[]), built_in, "a stale variable is none");
        let _ = std::fs::remove_dir_all(folder);
    }
}
