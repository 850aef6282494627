//! The program as its users run it: real processes, real HTTP, real traces.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]

mod demo;
mod env_test;
mod faults;
mod memory;
mod models;
mod propagation;
mod python;
mod recipes;
mod spans;
mod spool;
mod support;
mod trace;
mod trace_context;
mod trees;
