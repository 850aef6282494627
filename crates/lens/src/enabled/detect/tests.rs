use std::collections::BTreeMap;

use super::*;

fn env(pairs: &[(&str, &str)]) -> Environment {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn shown(detected: Detected) -> BTreeMap<&'static str, String> {
    let count = detected.len();
    let shown: BTreeMap<_, _> =
        detected.into_iter().map(|(key, value)| (key, value.to_string())).collect();
    assert_eq!(shown.len(), count, "an attribute came twice");
    shown
}

fn expected(pairs: &[(&'static str, &str)]) -> BTreeMap<&'static str, String> {
    pairs.iter().map(|(key, value)| (*key, (*value).to_owned())).collect()
}

/// A folder that stands for `/`, with these files.
fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

#[test]
fn the_host_is_named_by_the_kernel_else_by_its_file() {
    let name =
        |root: &tempfile::TempDir| shown(local(&env(&[]), root.path())).get("host.name").cloned();
    let both = root(&[("proc/sys/kernel/hostname", "node-7\n"), ("etc/hostname", "other\n")]);
    assert_eq!(name(&both).as_deref(), Some("node-7"));
    assert_eq!(name(&root(&[("etc/hostname", "other\n")])).as_deref(), Some("other"));
    assert_eq!(name(&root(&[])), None);
    let pid = std::process::id().to_string();
    let on_its_own = local(&env(&[]), root(&[]).path());
    assert_eq!(shown(on_its_own), expected(&[("process.pid", &pid)]));
}

#[test]
fn slurm_says_job_step_node_and_rank_only_inside_of_a_job() {
    let variables = [
        ("SLURM_JOB_NAME", "grpo"),
        ("SLURM_CLUSTER_NAME", "hpc"),
        ("SLURM_JOB_PARTITION", "batch"),
        ("SLURM_PARTITION", "older name"),
        ("SLURM_NODELIST", "node[1-2]"),
        ("SLURM_NNODES", "2"),
        ("SLURM_NTASKS", "16"),
        ("SLURM_ARRAY_JOB_ID", "40"),
        ("SLURM_ARRAY_TASK_ID", "3"),
        ("SLURM_RESTART_COUNT", "1"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_NODEID", "1"),
        ("SLURMD_NODENAME", "node2"),
        ("SLURM_PROCID", "9"),
        ("SLURM_LOCALID", " "),
    ];
    assert_eq!(slurm(&env(&variables)), []);
    let mut job = env(&variables);
    job.insert("SLURM_JOB_ID".to_owned(), "43".to_owned());
    assert_eq!(
        shown(slurm(&job)),
        expected(&[
            ("slurm.job.id", "43"),
            ("slurm.job.name", "grpo"),
            ("slurm.cluster.name", "hpc"),
            ("slurm.partition", "batch"),
            ("slurm.nodelist", "node[1-2]"),
            ("slurm.nnodes", "2"),
            ("slurm.ntasks", "16"),
            ("slurm.array.job_id", "40"),
            ("slurm.array.task_id", "3"),
            ("slurm.restart_count", "1"),
            ("slurm.step.id", "0"),
            ("slurm.node.id", "1"),
            ("slurm.node.name", "node2"),
            ("slurm.procid", "9"),
        ])
    );
}

#[test]
fn a_pod_is_known_by_its_variables_first() {
    let pod = env(&[
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("HOSTNAME", "from-hostname"),
        ("K8S_POD_NAME", "gym-0"),
        ("POD_NAME", "second choice"),
        ("POD_NAMESPACE", "rl"),
        ("MY_NODE_NAME", "node-a"),
        ("CONTAINER_NAME", "main"),
        ("K8S_POD_UID", "u-1"),
        ("K8S_JOB_NAME", "train"),
    ]);
    let account = root(&[("var/run/secrets/kubernetes.io/serviceaccount/namespace", "other")]);
    assert_eq!(
        shown(kubernetes(&pod, account.path())),
        expected(&[
            ("k8s.pod.name", "gym-0"),
            ("k8s.namespace.name", "rl"),
            ("k8s.node.name", "node-a"),
            ("k8s.container.name", "main"),
            ("k8s.pod.uid", "u-1"),
            ("k8s.job.name", "train"),
        ])
    );
}

#[test]
fn a_pod_without_variables_is_known_by_its_host_name_and_service_account() {
    let account = root(&[("var/run/secrets/kubernetes.io/serviceaccount/namespace", "rl\n")]);
    let bare = env(&[("HOSTNAME", "gym-0")]);
    assert_eq!(
        shown(kubernetes(&bare, account.path())),
        expected(&[("k8s.pod.name", "gym-0"), ("k8s.namespace.name", "rl")])
    );
    // A host name alone is no pod, nor is a variable that some other program may have set.
    let elsewhere = env(&[("HOSTNAME", "laptop"), ("NODE_NAME", "x"), ("POD_NAME", "y")]);
    assert_eq!(kubernetes(&elsewhere, root(&[]).path()), []);
}

#[test]
fn everything_is_detected_together() {
    let both = env(&[
        ("SLURM_JOB_ID", "7"),
        ("KUBERNETES_SERVICE_HOST", "10.0.0.1"),
        ("CUDA_VISIBLE_DEVICES", "0,1"),
    ]);
    let detected = shown(all(&both, root(&[("etc/hostname", "h")]).path()));
    let keys: Vec<_> = detected.keys().copied().collect();
    assert_eq!(keys, ["host.gpu.count", "host.name", "process.pid", "slurm.job.id"]);
    assert_eq!(detected["host.gpu.count"], "2");
}
