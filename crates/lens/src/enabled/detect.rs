//! What the environment and a few files say about where this process runs.
//!
//! Functions of an environment as a map and of a folder that stands for `/`, so that a test needs neither a cluster
//! nor a GPU. Detected attributes are the weakest: what anybody set takes their place.
//!
//! Guarantee: nothing here takes longer than [`gpu::LIMIT`], and only the count of GPUs takes any time.

mod command;
pub mod gpu;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::value::Value;
use crate::env_vars::{self, k8s as k8s_vars, slurm as slurm_vars};
use crate::semconv::{self, k8s, slurm};

/// An environment, by name.
pub type Environment = BTreeMap<String, String>;
/// What was detected, by attribute.
pub type Detected = Vec<(&'static str, Value)>;

/// The folder that every pod has, unless its author forbade it.
const POD_SECRETS: &str = "var/run/secrets/kubernetes.io";
const POD_NAMESPACE: &str = "serviceaccount/namespace";

/// Everything below; of a repeated attribute the last one counts, and none is.
pub fn all(env: &Environment, root: &Path) -> Detected {
    let mut detected = local(env, root);
    detected.extend(slurm(env));
    detected.extend(kubernetes(env, root));
    detected
}

/// Host, process and GPUs: `host.name`, `process.pid`, and `host.gpu.count` unless nothing says how many there are.
pub fn local(env: &Environment, root: &Path) -> Detected {
    let mut detected = vec![(semconv::PROCESS_PID, Value::from(std::process::id()))];
    if let Some(name) = host_name(root) {
        detected.push((semconv::HOST_NAME, name.into()));
    }
    if let Some(count) = gpu::count(env) {
        detected.push((semconv::HOST_GPU_COUNT, count.into()));
    }
    detected
}

/// Job, step, node and rank of a Slurm job, as texts; nothing outside of one.
pub fn slurm(env: &Environment) -> Detected {
    if text(env, &[slurm_vars::JOB_ID]).is_none() {
        return Detected::new();
    }
    let table: [(&str, &[&str]); 15] = [
        (slurm::JOB_ID, &[slurm_vars::JOB_ID]),
        (slurm::JOB_NAME, &[slurm_vars::JOB_NAME]),
        (slurm::ARRAY_JOB_ID, &[slurm_vars::ARRAY_JOB_ID]),
        (slurm::ARRAY_TASK_ID, &[slurm_vars::ARRAY_TASK_ID]),
        (slurm::CLUSTER_NAME, &[slurm_vars::CLUSTER_NAME]),
        (slurm::PARTITION, &slurm_vars::PARTITION),
        (slurm::NODELIST, &slurm_vars::NODELIST),
        (slurm::NNODES, &slurm_vars::NNODES),
        (slurm::NTASKS, &[slurm_vars::NTASKS]),
        (slurm::RESTART_COUNT, &[slurm_vars::RESTART_COUNT]),
        (slurm::STEP_ID, &[slurm_vars::STEP_ID]),
        (slurm::NODE_ID, &[slurm_vars::NODEID]),
        (slurm::NODE_NAME, &[slurm_vars::NODENAME]),
        (slurm::PROC_ID, &[slurm_vars::PROCID]),
        (slurm::LOCAL_ID, &[slurm_vars::LOCALID]),
    ];
    named(env, &table)
}

/// Pod, namespace, node and container in Kubernetes; nothing outside of a pod.
///
/// Without variables the pod is what `HOSTNAME` says and the namespace that of the service account; node and
/// container are known only from variables.
pub fn kubernetes(env: &Environment, root: &Path) -> Detected {
    let secrets = root.join(POD_SECRETS);
    if text(env, &[k8s_vars::SERVICE_HOST]).is_none() && !secrets.is_dir() {
        return Detected::new();
    }
    let mut pod_name = k8s_vars::POD_NAME.to_vec();
    pod_name.push(env_vars::HOSTNAME);
    let table: [(&str, &[&str]); 6] = [
        (k8s::NAMESPACE_NAME, &k8s_vars::NAMESPACE),
        (k8s::POD_NAME, &pod_name),
        (k8s::POD_UID, &k8s_vars::POD_UID),
        (k8s::NODE_NAME, &k8s_vars::NODE_NAME),
        (k8s::CONTAINER_NAME, &k8s_vars::CONTAINER_NAME),
        (k8s::JOB_NAME, &k8s_vars::JOB_NAME),
    ];
    let mut detected = named(env, &table);
    if !detected.iter().any(|(key, _)| *key == k8s::NAMESPACE_NAME)
        && let Some(namespace) = line_of(&secrets.join(POD_NAMESPACE))
    {
        detected.push((k8s::NAMESPACE_NAME, namespace.into()));
    }
    detected
}

/// The first of these variables that is set; a blank one is not.
fn text<'a>(env: &'a Environment, variables: &[&str]) -> Option<&'a str> {
    let texts = variables.iter().filter_map(|name| env.get(*name));
    texts.map(|text| text.trim()).find(|text| !text.is_empty())
}

fn named(env: &Environment, table: &[(&'static str, &[&str])]) -> Detected {
    let found = table.iter().filter_map(|(key, variables)| Some((*key, text(env, variables)?)));
    found.map(|(key, text)| (key, Value::from(text))).collect()
}

fn host_name(root: &Path) -> Option<String> {
    line_of(&root.join("proc/sys/kernel/hostname")).or_else(|| line_of(&root.join("etc/hostname")))
}

fn line_of(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

#[cfg(test)]
mod tests;
