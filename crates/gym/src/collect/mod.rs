//! Collection of rollouts: rows in, rows out.
