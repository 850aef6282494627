//! The GPUs of this host, as far as this process may use them.
//!
//! `CUDA_VISIBLE_DEVICES` says which; how many there are without it, and what they do, is known to `nvidia-smi` alone,
//! which is looked for on the `PATH`. Nothing here links a driver.

use std::path::PathBuf;
use std::time::Duration;

use super::{Environment, command, text};
use crate::env_vars;

/// How long `nvidia-smi` may take; it takes seconds on a host whose driver has to be woken.
pub const LIMIT: Duration = Duration::from_millis(1_500);

const PROGRAM: &str = "nvidia-smi";
const LIST: &[&str] = &["-L"];
const SAMPLE: &[&str] = &[
    "--query-gpu=index,uuid,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
];
/// How a line of `nvidia-smi -L` begins; those of its parts are indented.
const LISTED: &str = "GPU ";
/// How UUIDs of GPUs and of their parts begin.
const UUIDS: [&str; 2] = ["GPU-", "MIG-"];

/// Which GPUs this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Visible {
    /// All of the host.
    All,
    /// Those listed, by index or by UUID or its beginning.
    Listed(Vec<String>),
}

impl Visible {
    /// What `CUDA_VISIBLE_DEVICES` says: entries count up to the first that names no device, as CUDA has it, so that an
    /// empty one and `-1` list none.
    pub fn from_env(env: &Environment) -> Self {
        let Some(list) = env.get(env_vars::CUDA_VISIBLE_DEVICES) else { return Self::All };
        let names_a_device = |entry: &&str| {
            let is_index = !entry.is_empty() && entry.bytes().all(|byte| byte.is_ascii_digit());
            is_index || UUIDS.iter().any(|prefix| entry.starts_with(prefix))
        };
        let entries = list.split(',').map(str::trim).take_while(names_a_device);
        Self::Listed(entries.map(str::to_owned).collect())
    }

    /// Whether the GPU with this index and UUID is one of them. The index is that of `nvidia-smi`, which CUDA counts
    /// by when `CUDA_DEVICE_ORDER` is `PCI_BUS_ID`.
    pub fn takes(&self, index: &str, uuid: &str) -> bool {
        match self {
            Self::All => true,
            Self::Listed(entries) => entries.iter().any(|entry| {
                entry == index || (entry.starts_with(UUIDS[0]) && uuid.starts_with(entry.as_str()))
            }),
        }
    }
}

/// How many GPUs this process may use; `None` when nothing says so.
///
/// Takes no time when `CUDA_VISIBLE_DEVICES` is set or `nvidia-smi` is not there, else at most [`LIMIT`].
pub fn count(env: &Environment) -> Option<usize> {
    if let Visible::Listed(entries) = Visible::from_env(env) {
        return Some(entries.len());
    }
    let listed = command::output(&program(env)?, LIST, LIMIT)?;
    let count = listed.lines().filter(|line| line.starts_with(LISTED)).count();
    (count > 0).then_some(count)
}

/// Where `nvidia-smi` is.
pub fn program(env: &Environment) -> Option<PathBuf> {
    let path = text(env, &[env_vars::PATH])?;
    std::env::split_paths(path).map(|folder| folder.join(PROGRAM)).find(|file| file.is_file())
}

/// What one GPU does.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Its index, as `nvidia-smi` counts.
    pub index: String,
    /// Its UUID.
    pub uuid: String,
    /// Percent of the time in which it computed; `None` when it does not tell.
    pub utilization_percent: Option<f64>,
    /// MiB of its memory in use.
    pub memory_used_mib: Option<f64>,
    /// MiB of memory.
    pub memory_total_mib: Option<f64>,
}

/// What the visible GPUs do now; `None` when `nvidia-smi` fails or takes longer than `limit`.
pub fn sample(
    program: &std::path::Path,
    visible: &Visible,
    limit: Duration,
) -> Option<Vec<Sample>> {
    let table = command::output(program, SAMPLE, limit)?;
    let rows = table.lines().filter_map(row);
    Some(rows.filter(|gpu| visible.takes(&gpu.index, &gpu.uuid)).collect())
}

/// `0, GPU-…, 35, 1024, 81559`; a device that cannot tell a number says so in its place.
fn row(line: &str) -> Option<Sample> {
    let mut fields = line.split(',').map(str::trim);
    let (index, uuid) = (fields.next()?, fields.next()?);
    let mut number = || fields.next().and_then(|field| field.parse::<f64>().ok());
    let sample = Sample {
        index: index.to_owned(),
        uuid: uuid.to_owned(),
        utilization_percent: number(),
        memory_used_mib: number(),
        memory_total_mib: number(),
    };
    (index.bytes().all(|byte| byte.is_ascii_digit()) && !index.is_empty()).then_some(sample)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::time::Instant;

    use super::*;

    /// A folder for the `PATH` in which `nvidia-smi` is this script.
    fn stand_in(script: &str) -> (tempfile::TempDir, Environment) {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(PROGRAM);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        let path = format!("/nonexistent:{}", folder.path().display());
        let env = Environment::from([("PATH".to_owned(), path)]);
        (folder, env)
    }

    fn with_devices(devices: &str) -> Environment {
        Environment::from([("CUDA_VISIBLE_DEVICES".to_owned(), devices.to_owned())])
    }

    #[test]
    fn visible_devices_are_counted_up_to_the_first_that_is_none() {
        for (devices, expected) in [
            ("0", 1),
            ("0, 2,GPU-8932f937", 3),
            ("MIG-aa,MIG-bb", 2),
            ("", 0),
            (" ", 0),
            ("-1", 0),
            ("1,-1,2", 1),
            ("NoDevFiles", 0),
        ] {
            assert_eq!(count(&with_devices(devices)), Some(expected), "{devices:?}");
        }
    }

    #[test]
    fn without_a_variable_gpus_are_counted_by_nvidia_smi() {
        let listed = "test \"$*\" = -L || exit 9\n\
             echo 'GPU 0: NVIDIA H100 (UUID: GPU-1)'\necho '  MIG 1g.10gb Device 0: (UUID: MIG-1)'\n\
             echo 'GPU 1: NVIDIA H100 (UUID: GPU-2)'";
        let (_folder, env) = stand_in(listed);
        assert_eq!(count(&env), Some(2));
    }

    #[test]
    fn a_host_without_gpus_has_no_count() {
        assert_eq!(count(&Environment::new()), None);
        let nowhere = Environment::from([("PATH".to_owned(), "/nonexistent".to_owned())]);
        assert_eq!(count(&nowhere), None);
        let (_folder, failing) = stand_in("echo 'GPU 0: unreachable'; exit 6");
        assert_eq!(count(&failing), None);
        let (_folder, none) = stand_in("echo 'No devices were found'");
        assert_eq!(count(&none), None);
    }

    /// Guarantees: a driver that hangs costs a start two seconds at most, also when the program has children.
    #[test]
    fn a_program_that_hangs_is_given_up_in_time() {
        for script in ["sleep 60", "sleep 60 & exit 0", "exec sleep 60"] {
            let (_folder, env) = stand_in(script);
            let began = Instant::now();
            assert_eq!(count(&env), None, "{script}");
            let took = began.elapsed();
            assert!(took >= LIMIT && took < Duration::from_secs(5), "{script}: {took:?}");
        }
    }

    #[test]
    fn a_sample_holds_the_visible_gpus_and_what_they_can_tell() {
        let (_folder, env) = stand_in(
            "echo '0, GPU-aa11, 35, 1024, 81559'\necho '1, GPU-bb22, [N/A], 5, 81559'\n\
             echo '2, GPU-cc33, 7, 6, [Not Supported]'\necho 'warning: something else'",
        );
        let program = program(&env).unwrap();
        let sampled = |env: &Environment| {
            let visible = Visible::from_env(env);
            let samples = sample(&program, &visible, Duration::from_secs(20)).unwrap();
            let show = |gpu: Sample| {
                let numbers = [gpu.utilization_percent, gpu.memory_used_mib, gpu.memory_total_mib];
                (gpu.index, gpu.uuid, numbers)
            };
            samples.into_iter().map(show).collect::<Vec<_>>()
        };
        let gpu = |index: &str, uuid: &str, numbers| (index.to_owned(), uuid.to_owned(), numbers);
        let [first, second, third] = [
            gpu("0", "GPU-aa11", [Some(35.0), Some(1024.0), Some(81559.0)]),
            gpu("1", "GPU-bb22", [None, Some(5.0), Some(81559.0)]),
            gpu("2", "GPU-cc33", [Some(7.0), Some(6.0), None]),
        ];
        assert_eq!(sampled(&env), [first.clone(), second.clone(), third.clone()]);
        assert_eq!(sampled(&with_devices("2,GPU-bb")), [second, third]);
        assert_eq!(sampled(&with_devices("0,0")), [first]);
        assert_eq!(sampled(&with_devices("")), []);
        let (_folder, failing) = stand_in("exit 9");
        let failing = super::program(&failing).unwrap();
        assert_eq!(sample(&failing, &Visible::All, Duration::from_secs(20)), None);
    }
}
