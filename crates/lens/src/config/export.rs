//! Which processes of a distributed job export.

/// How it is chosen which processes export.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportSettings {
    /// `all_ranks`, `single_rank`, `sampled`, `first_rank_per_node` or the name of a registered strategy.
    pub strategy: String,
    /// For `single_rank`: the rank that exports; negative ones count from the last, -1.
    pub rank: i64,
    /// For `sampled`: the share of processes, 0.0 to 1.0.
    pub sample_rate: f64,
    /// The rank-aware sampler: processes that do not export take part in traces begun by others.
    pub sampler: bool,
}

impl Default for ExportSettings {
    fn default() -> Self {
        Self { strategy: "all_ranks".to_owned(), rank: -1, sample_rate: 1.0, sampler: false }
    }
}

/// The process that a strategy decides about.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ExportCandidate {
    /// Its rank.
    pub rank: u32,
    /// How many ranks there are.
    pub world_size: u32,
    /// Its rank among those of its host.
    pub local_rank: u32,
    /// The rank that the settings name; negative ones count from the last, -1.
    pub export_rank: i64,
    /// The share that the settings name.
    pub sample_rate: f64,
    /// `service.name`.
    pub service_name: String,
    /// The run's id, or empty.
    pub run_id: String,
}
