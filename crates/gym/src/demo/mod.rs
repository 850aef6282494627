//! One command that shows where rollouts spend their time.
