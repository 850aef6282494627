//! The program as its users run it: real processes, real HTTP, real traces.

#![allow(clippy::print_stderr, reason = "a skipped test says so")]

mod contract;
mod damaged;
mod demo;
mod doctor;
mod ending;
mod env_test;
mod exchange;
mod faults;
mod memory;
mod models;
mod observe;
mod off;
mod propagation;
mod python;
mod real_run;
mod recipes;
mod run_watch;
mod sandbox;
mod spans;
mod spool;
mod startup;
mod support;
mod telemetry;
mod trace;
mod trace_context;
mod trace_forms;
mod trace_search;
mod trees;
mod under_way;
