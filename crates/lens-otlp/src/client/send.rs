//! One export: pieces, tries, outcome, all within one budget.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::connection::{Broken, Connection};
use super::request::{self, Content};
use super::response;
use super::retry::{Verdict, back_off};
use super::trouble::Trouble;
use super::{OBSERVE_HEADER, Outcome, Prepared};
use crate::split;

/// What a sender keeps between requests.
#[derive(Debug, Default)]
pub(super) struct State {
    connection: Option<Connection>,
    /// Larger requests are split, because the receiver refused them.
    max_bytes: Option<usize>,
    rest: Option<Rest>,
    signs: Arc<Signs>,
}

/// What a sender and whoever uses it tell each other while a request is on its way.
#[derive(Debug, Default)]
pub(super) struct Signs {
    trouble: Mutex<Option<Trouble>>,
    /// Tries that found nobody there.
    refusals: AtomicU64,
    /// Whether the receiver shows what is open.
    observed: AtomicBool,
    hurry: Notify,
}

impl Signs {
    pub(super) fn take_trouble(&self) -> Option<Trouble> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    pub(super) fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Acquire)
    }

    pub(super) fn is_observed(&self) -> bool {
        self.observed.load(Ordering::Acquire)
    }

    pub(super) fn hurry(&self) {
        self.hurry.notify_one();
    }
}

impl State {
    pub(super) fn new(signs: Arc<Signs>) -> Self {
        Self { signs, ..Self::default() }
    }

    fn note(&self, trouble: Trouble) {
        let is_refusal = trouble.is_nobody_there();
        *self.signs.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(trouble);
        if is_refusal {
            self.signs.refusals.fetch_add(1, Ordering::Release);
        }
    }
}

/// What is left of a request that was split, when a piece could not be delivered: the others are not sent twice.
#[derive(Debug)]
struct Rest {
    whole: Arc<Vec<u8>>,
    pieces: Vec<Arc<Vec<u8>>>,
    rejected: u64,
}

pub(super) async fn send(
    state: &tokio::sync::Mutex<State>,
    target: &Prepared,
    whole: &Arc<Vec<u8>>,
) -> Outcome {
    let deadline = Instant::now() + target.timeout;
    let Ok(mut state) = timeout_at(deadline, state.lock()).await else {
        return Outcome::FAILED;
    };
    let known = state.rest.take().filter(|rest| Arc::ptr_eq(&rest.whole, whole));
    // The first to send is the last of the list.
    let (mut pieces, mut rejected) =
        known.map_or_else(|| (vec![Arc::clone(whole)], 0), |rest| (rest.pieces, rest.rejected));
    while let Some(piece) = pieces.pop() {
        let max_bytes = state.max_bytes.unwrap_or(usize::MAX).min(target.max_request_bytes);
        if piece.len() > max_bytes && divide(&piece, &mut pieces) {
            continue;
        }
        match deliver(&mut state, target, &piece, deadline).await {
            Delivery::Accepted(refused) => rejected += refused,
            Delivery::TooLarge(trouble) => {
                state.max_bytes = Some(piece.len() / 2);
                if divide(&piece, &mut pieces) {
                    continue;
                }
                state.note(trouble);
                rejected += split::count_items(&piece);
            }
            Delivery::Refused if Arc::ptr_eq(&piece, whole) => return Outcome::Refused,
            Delivery::Refused => rejected += split::count_items(&piece),
            Delivery::Failed { not_before } => {
                if !Arc::ptr_eq(&piece, whole) {
                    pieces.push(piece);
                    state.rest = Some(Rest { whole: Arc::clone(whole), pieces, rejected });
                }
                return Outcome::Failed { not_before };
            }
        }
    }
    Outcome::Accepted { rejected }
}

/// Puts the halves of a piece in its place; false when it cannot be smaller.
fn divide(piece: &[u8], pieces: &mut Vec<Arc<Vec<u8>>>) -> bool {
    let Some([first, second]) = split::halve(piece) else { return false };
    pieces.extend([Arc::new(second), Arc::new(first)]);
    true
}

enum Delivery {
    Accepted(u64),
    TooLarge(Trouble),
    Refused,
    Failed { not_before: Option<Duration> },
}

async fn deliver(
    state: &mut State,
    target: &Prepared,
    piece: &Arc<Vec<u8>>,
    deadline: Instant,
) -> Delivery {
    let Some(content) = Content::new(target, piece) else { return Delivery::Refused };
    let mut tries = 0;
    loop {
        tries += 1;
        let wait = match timeout_at(deadline, try_once(state, target, &content)).await {
            Ok(Ok(Verdict::Accepted { rejected, message })) => {
                if rejected > 0 {
                    state.note(Trouble::Rejected { items: rejected, message });
                }
                return Delivery::Accepted(rejected);
            }
            Ok(Ok(Verdict::TooLarge(trouble))) => return Delivery::TooLarge(trouble),
            Ok(Ok(Verdict::Refused(trouble))) => {
                state.note(trouble);
                return Delivery::Refused;
            }
            Ok(Ok(Verdict::Retry { after, trouble })) => {
                state.note(trouble);
                after
            }
            Ok(Err(Broken(trouble))) => {
                state.connection = None;
                state.note(trouble);
                None
            }
            Err(_) => {
                // What is left of the exchange must not meet the next request.
                state.connection = None;
                // A try before this one knew more.
                if tries == 1 {
                    state.note(Trouble::TimedOut);
                }
                return Delivery::Failed { not_before: None };
            }
        };
        // A cheap spread is enough: it only keeps processes of a fleet apart.
        let spread = f64::from(std::process::id() % 97) / 97.0;
        let pause = wait.unwrap_or(Duration::ZERO).max(back_off(tries, spread));
        if Instant::now() + pause >= deadline {
            return Delivery::Failed { not_before: wait };
        }
        // Ends early when somebody is in a hurry.
        let _ = timeout(pause, state.signs.hurry.notified()).await;
    }
}

async fn try_once(
    state: &mut State,
    target: &Prepared,
    content: &Content,
) -> Result<Verdict, Broken> {
    let mut connection = match state.connection.take().filter(|open| !open.is_closed()) {
        Some(connection) => connection,
        None => Connection::open(target).await?,
    };
    let response = connection.send(target, request::request(target, content)).await?;
    if response.headers().contains_key(OBSERVE_HEADER) {
        state.signs.observed.store(true, Ordering::Release);
    }
    let verdict = response::read(target, response).await?;
    state.connection = Some(connection);
    Ok(verdict)
}
