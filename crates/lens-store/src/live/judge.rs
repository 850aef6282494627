//! Rows of what is under way, and the judgement on each.

use std::sync::Arc;

use super::InFlight;
use super::entry::Entry;
use super::row::{LastEvent, Mark, Row, Seconds, Stage, doing};
use crate::ids::TraceId;

impl InFlight {
    /// All rollouts that are under way, in an order that stays.
    pub fn rows(&self, now_nanos: u64) -> Vec<Row> {
        let mut entries: Vec<(&TraceId, &Entry)> = self
            .traces
            .iter()
            .flat_map(|(trace, entries)| entries.iter().map(move |entry| (trace, entry)))
            .collect();
        entries.sort_unstable_by_key(|(trace, entry)| (entry.order_nanos, *trace, &entry.rollout));
        let last_heard = self.processes.last_heard_nanos();
        entries.iter().map(|(trace, entry)| self.row(trace, entry, now_nanos, last_heard)).collect()
    }

    fn row(&self, trace: &TraceId, entry: &Entry, now_nanos: u64, last_heard: u64) -> Row {
        let ago = |nanos: u64| now_nanos.saturating_sub(nanos);
        let stage = entry.stage();
        let told = stage.map(|stage| {
            let process = self.processes.get(stage.process);
            Stage {
                doing: doing(stage.name, &process.server_type).to_owned(),
                span: stage.name.to_owned(),
                server: process.server.to_string(),
                open_nanos: ago(stage.begun_nanos),
            }
        });
        let (mark, explanation) = self.judge(entry, told.as_ref(), now_nanos, last_heard);
        let group = entry.task.and_then(|task| self.groups.get(&(Arc::clone(&entry.run), task)));
        Row {
            run: entry.run.to_string(),
            task_index: entry.task,
            rollout_index: entry.index,
            attempt_index: entry.attempt,
            rollout_id: entry.rollout.as_deref().unwrap_or_default().to_owned(),
            agent: entry.agent.as_deref().unwrap_or_default().to_owned(),
            trace_id: trace.to_string(),
            stage: told,
            age_nanos: ago(entry.begun_nanos),
            heartbeat_ago_nanos: ago(entry.heard_nanos),
            moved_ago_nanos: ago(entry.moved_nanos),
            last_event: LastEvent {
                what: entry.last.what,
                name: entry.last.name.to_string(),
                server: entry.last.server.to_string(),
                ago_nanos: ago(entry.last.at_nanos),
            },
            retries: entry.retries,
            mark,
            explanation,
            group: group.copied().unwrap_or_default(),
        }
    }

    fn judge(
        &self,
        entry: &Entry,
        stage: Option<&Stage>,
        now_nanos: u64,
        last_heard: u64,
    ) -> (Mark, String) {
        if let Some(gone) = &entry.gone {
            let what = doing(&gone.name, &self.processes.get(gone.process).server_type);
            let ago = Seconds(now_nanos.saturating_sub(gone.at_nanos));
            let text = format!("dead in {what}, server {}: it ended {ago} ago", gone.server);
            return (Mark::Dead, text);
        }
        let place = stage.map_or_else(
            || "no open span".to_owned(),
            |stage| format!("{}, server {}", stage.doing, stage.server),
        );
        let missed = self.missed_nanos();
        let heard_nanos = entry.stage().map_or(entry.heard_nanos, |stage| stage.heard_nanos);
        if now_nanos.saturating_sub(heard_nanos) > missed {
            let process = entry.stage().map(|stage| self.processes.get(stage.process));
            let silent_nanos =
                process.map_or(0, |process| now_nanos.saturating_sub(process.heard_nanos));
            // While nobody at all is heard, it is not this process that is gone.
            if silent_nanos > missed && now_nanos.saturating_sub(last_heard) <= missed {
                let silent = Seconds(silent_nanos);
                return (Mark::Dead, format!("dead in {place}: it is silent for {silent}"));
            }
            let ago = Seconds(now_nanos.saturating_sub(heard_nanos));
            return (Mark::Unknown, format!("no heartbeat for {ago}, last in {place}"));
        }
        let retrying = entry.retrying();
        // Who waits to ask again is not stalled, however long the wait.
        let moved_nanos = retrying.map_or(entry.moved_nanos, |retrying| retrying.until_nanos);
        let still_nanos = now_nanos.saturating_sub(moved_nanos);
        if still_nanos >= self.settings.stalled_after_nanos {
            return (Mark::Stalled, format!("stalled {} in {place}", Seconds(still_nanos)));
        }
        match retrying {
            Some(retrying) => (Mark::Retrying, format!("in {place}: {}", retrying.text)),
            None => (Mark::Running, format!("in {place}")),
        }
    }
}
