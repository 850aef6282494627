//! Collection of rollouts: rows in, rows out.
#![allow(dead_code, unused_imports)]

mod error;
mod files;
mod members;
mod plan;
mod prepare;
mod prompt;
