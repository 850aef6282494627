//! The files of one run, named after its output.

use std::path::{Path, PathBuf};

/// Where a run writes. Everything lies beside the output and shares its stem.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFiles {
    /// One line per rollout that was scored.
    pub output: PathBuf,
    /// One line per rollout that failed.
    pub failures: PathBuf,
    /// One line per rollout as it is sent to its agent.
    pub materialized: PathBuf,
    /// What `--resume` must know: the id of the run.
    pub run: PathBuf,
    /// The aggregate metrics, when there are any.
    pub metrics: PathBuf,
}

impl RunFiles {
    /// The files of a run with this output. Beside a device such as `/dev/null` nothing is created: its companions go
    /// to the working directory.
    pub fn of(output: &Path) -> RunFiles {
        let stem = output.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let directory = if is_device(output) {
            Path::new("")
        } else {
            output.parent().unwrap_or(Path::new(""))
        };
        let beside = |suffix: &str| directory.join(format!("{stem}{suffix}"));
        RunFiles {
            output: output.to_owned(),
            failures: beside("_failures.jsonl"),
            materialized: beside("_materialized_inputs.jsonl"),
            run: beside("_run.json"),
            metrics: beside("_aggregate_metrics.json"),
        }
    }

    /// Where the collated rows of a split go.
    pub fn preprocessed(output: &Path, split: &str) -> PathBuf {
        output.with_extension("").join("preprocessed_datasets").join(format!("{split}.jsonl"))
    }
}

fn is_device(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    path.starts_with("/dev")
        && std::fs::symlink_metadata(path)
            .is_ok_and(|meta| meta.file_type().is_char_device() || meta.file_type().is_symlink())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn companions_share_the_stem_of_the_output() {
        let files = RunFiles::of(Path::new("results/run.1.jsonl"));
        assert_eq!(files.failures, Path::new("results/run.1_failures.jsonl"));
        assert_eq!(files.materialized, Path::new("results/run.1_materialized_inputs.jsonl"));
        assert_eq!(files.metrics, Path::new("results/run.1_aggregate_metrics.json"));
        assert_eq!(
            RunFiles::preprocessed(Path::new("results/run.jsonl"), "train"),
            Path::new("results/run/preprocessed_datasets/train.jsonl")
        );
    }

    #[test]
    fn nothing_is_created_beside_a_device() {
        assert_eq!(RunFiles::of(Path::new("/dev/full")).failures, Path::new("full_failures.jsonl"));
    }
}
