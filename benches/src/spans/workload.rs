//! What every library is made to do: one root with nine children, each with the same attributes.

/// Spans of one group.
pub const SPANS: usize = 10;
/// Stands for a number of attributes: four of a site and the five ids of a rollout, which lens has from its context.
pub const WITH_CONTEXT: usize = 9;

/// A value that is known when the program is built.
pub const FIXED: &str = "a fixed text";
/// Keys of four attributes, and of the same four again.
pub const FIXED_KEY: &str = "bench.fixed";
pub const TEXT_KEY: &str = "bench.text";
pub const NUMBER_KEY: &str = "bench.number";
pub const FLAG_KEY: &str = "bench.flag";
pub const FIXED_KEY_2: &str = "bench.fixed.again";
pub const TEXT_KEY_2: &str = "bench.text.again";
pub const NUMBER_KEY_2: &str = "bench.number.again";
pub const FLAG_KEY_2: &str = "bench.flag.again";

/// What every span of a rollout carries.
pub const ROLLOUT_ID: &str = "nemo.gym.rollout.id";
pub const TASK_INDEX: &str = "nemo.gym.task.index";
pub const ROLLOUT_INDEX: &str = "nemo.gym.rollout.index";
pub const ATTEMPT_INDEX: &str = "nemo.gym.attempt.index";
pub const COLLECTION_ID: &str = "nemo.gym.collection.id";

/// What is known only while the program runs.
pub struct Data {
    /// Twelve bytes.
    pub text: String,
    pub number: i64,
    pub flag: bool,
    pub rollout_id: String,
    pub task_index: i64,
    pub rollout_index: i64,
    pub attempt_index: i64,
    pub collection_id: String,
}

impl Data {
    pub fn new() -> Self {
        let number = std::hint::black_box(1234);
        Self {
            text: format!("runtime {number}"),
            number,
            flag: std::hint::black_box(true),
            rollout_id: format!("{}-{}", number + 1, 3),
            task_index: number + 1,
            rollout_index: 3,
            attempt_index: 0,
            collection_id: format!("{:012x}", 0x5eed_1234_5678_u64),
        }
    }
}

/// A library under test, set up in this process.
pub trait Subject: Send + Sync {
    /// Makes and ends a root with nine children of `N` attributes each.
    ///
    /// `between` runs before each operation: the start of the root, each child, the end of the root.
    fn group<const N: usize>(&self, data: &Data, between: &mut impl FnMut());

    /// Runs groups of [`WITH_CONTEXT`] the way the library wants it.
    fn in_rollout(&self, _data: &Data, run: &mut dyn FnMut()) {
        run();
    }

    /// Waits until what has ended is out of the process.
    fn flush(&self);

    /// Spans that left the process, or were counted in place of that.
    fn delivered(&self) -> u64;

    /// Spans that the library says it lost; `None` when it does not say.
    fn said_lost(&self) -> Option<u64> {
        None
    }

    /// Spans that wait, in memory or in a file, if the library says.
    fn waiting(&self) -> Option<u64> {
        None
    }

    /// The share of the buffer that is in use, if the library says.
    fn fill(&self) -> Option<f64> {
        None
    }

    /// Ends the library, within its own patience.
    fn shut_down(&self) {
        self.flush();
    }
}

/// Where spans go.
#[derive(Clone, Debug)]
pub enum Destination {
    /// They are counted and forgotten, on the exporting thread.
    Counted,
    /// OTLP.
    Wire { transport: Transport, endpoint: String },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Http,
    Grpc,
}

/// No library: what the measurement itself costs.
pub struct Nothing;

impl Subject for Nothing {
    #[inline]
    fn group<const N: usize>(&self, _data: &Data, between: &mut impl FnMut()) {
        for _ in 0..=SPANS {
            between();
        }
    }

    fn flush(&self) {}

    fn delivered(&self) -> u64 {
        0
    }
}
