//! The attribute macro of lens.
