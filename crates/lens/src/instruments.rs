//! Instruments that several programs share, under the names of the conventions they come from.
//!
//! Nothing here records by itself: a program that generates or trains calls them. Reward is no metric, so there is none.

/// Calls of a generative model, by the OpenTelemetry conventions for generative AI.
pub mod inference {
    use crate::metrics::Histogram;
    use crate::semconv::inference as names;

    /// Upper bounds in seconds that the conventions ask for.
    pub const DURATION_BOUNDS_SECONDS: &[f64] =
        &[0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92];
    /// Upper bounds in tokens that the conventions ask for.
    pub const TOKEN_BOUNDS: &[f64] = &[
        1.0,
        4.0,
        16.0,
        64.0,
        256.0,
        1_024.0,
        4_096.0,
        16_384.0,
        65_536.0,
        262_144.0,
        1_048_576.0,
        4_194_304.0,
        16_777_216.0,
        67_108_864.0,
    ];

    /// Seconds of a request on the side that answers.
    pub static SERVER_REQUEST_DURATION: Histogram = Histogram::with_bounds(
        names::SERVER_REQUEST_DURATION,
        "s",
        "Duration of requests that a generative model answered",
        DURATION_BOUNDS_SECONDS,
    );
    /// Tokens of a request: one sample for those that went in and one for those that came out.
    pub static CLIENT_TOKEN_USAGE: Histogram = Histogram::with_bounds(
        names::CLIENT_TOKEN_USAGE,
        "{token}",
        "Input and output tokens of requests",
        TOKEN_BOUNDS,
    );
}

/// Steps of a training run.
pub mod rl {
    use crate::metrics::{Gauge, Histogram};
    use crate::semconv::rl as names;

    /// Divergence of the policy from its reference.
    pub static KL_DIVERGENCE: Gauge =
        Gauge::new(names::KL_DIVERGENCE, "1", "Divergence of the policy from its reference");
    /// Loss of the policy.
    pub static POLICY_LOSS: Gauge = Gauge::new(names::POLICY_LOSS, "1", "Loss of the policy");
    /// Loss of the value function.
    pub static VALUE_LOSS: Gauge = Gauge::new(names::VALUE_LOSS, "1", "Loss of the value function");
    /// Entropy of the policy.
    pub static ENTROPY: Gauge = Gauge::new(names::ENTROPY, "1", "Entropy of the policy");
    /// Mean length of responses.
    pub static RESPONSE_LENGTH_MEAN: Gauge =
        Gauge::new(names::RESPONSE_LENGTH_MEAN, "{token}", "Mean length of responses");
    /// Norm of the gradient of an update.
    pub static GRAD_NORM: Gauge =
        Gauge::new(names::GRAD_NORM, "1", "Norm of the gradient of an update");
    /// Learning rate in force.
    pub static LEARNING_RATE: Gauge =
        Gauge::new(names::LEARNING_RATE, "1", "Learning rate in force");
    /// Training throughput.
    pub static TOKENS_PER_SECOND: Gauge =
        Gauge::new(names::TOKENS_PER_SECOND, "{token}/s", "Training throughput");
    /// One generation phase.
    pub static GENERATION_DURATION: Histogram =
        Histogram::new(names::GENERATION_DURATION, "ms", "Wall clock of a generation phase");
    /// One collection of rollouts.
    pub static ROLLOUT_DURATION: Histogram =
        Histogram::new(names::ROLLOUT_DURATION, "ms", "Wall clock of a collection of rollouts");
}
