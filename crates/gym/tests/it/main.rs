//! The program as its users run it: real processes, real HTTP, real traces.

mod spans;
mod support;
mod trees;
