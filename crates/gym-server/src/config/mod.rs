//! The merged config of a fleet: YAML files, `env.yaml`, command-line overrides.

/// One file that travels inside the binary, at its path below a search root.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddedFile {
    /// Path below the search root, with `/` as separator.
    pub path: &'static str,
    /// Content.
    pub bytes: &'static [u8],
}
