//! The command line of the Gym.

fn main() {}
