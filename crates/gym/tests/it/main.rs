//! The program as its users run it: real processes, real HTTP, real traces.

mod env_test;
mod propagation;
mod python;
mod spans;
mod support;
mod trees;
