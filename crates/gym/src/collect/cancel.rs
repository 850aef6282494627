//! Stopping a collection: gently, then at once.

use tokio::sync::watch;

/// How far a collection is to be stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Stop {
    /// Not at all.
    #[default]
    Never,
    /// No new rollouts; those in flight get a moment.
    Gently,
    /// Everything in flight is dropped.
    Now,
}

/// Tells a collection to stop.
#[derive(Debug)]
pub struct Canceller(watch::Sender<Stop>);

/// Learns that a collection is to stop.
#[derive(Debug, Clone)]
pub struct Cancel(watch::Receiver<Stop>);

/// Both ends of a new cancellation.
pub fn cancellation() -> (Canceller, Cancel) {
    let (sender, receiver) = watch::channel(Stop::Never);
    (Canceller(sender), Cancel(receiver))
}

impl Canceller {
    /// Asks for a stop; a weaker one than was asked for before has no effect.
    pub fn stop(&self, stop: Stop) {
        self.0.send_if_modified(|current| {
            let stronger = stop > *current;
            *current = stop.max(*current);
            stronger
        });
    }
}

impl Cancel {
    /// Resolves once a stop of at least this strength was asked for.
    pub async fn reached(&mut self, stop: Stop) {
        if self.0.wait_for(|current| *current >= stop).await.is_err() {
            // Nobody can ask any more.
            std::future::pending::<()>().await;
        }
    }
}
