//! The supervisor from outside: real processes, real pipes, real signals.

mod guarded;
mod process;
mod start;
