//! Checks an environment against the contract of its servers.
