//! What goes wrong on purpose, and how often.

use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::random::Rng;

/// Faults and the share of requests that get one.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Faults {
    /// 0 to 1.
    pub rate: f64,
    /// What happens.
    pub fault: Fault,
}

/// One way in which a request fails.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Fault {
    /// A reply with this status, and `Retry-After` in seconds if given.
    Status {
        /// HTTP status
        #[serde(default = "internal_error")]
        status: u16,
        /// Seconds that the client is asked to wait
        retry_after: Option<u64>,
    },
    /// The connection ends without a reply.
    Reset,
    /// The body comes in pieces over this time.
    SlowBody {
        /// Milliseconds from the first byte to the last
        #[serde(default = "slow_millis", rename = "ms")]
        millis: u64,
    },
    /// Nothing comes for an hour.
    Hang,
}

/// How long a hanging request is held.
pub const HANG: Duration = Duration::from_secs(3600);

fn internal_error() -> u16 {
    500
}

fn slow_millis() -> u64 {
    1000
}

impl Default for Fault {
    fn default() -> Self {
        Fault::Status { status: internal_error(), retry_after: None }
    }
}

/// Faults that cannot be read.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FaultsError {
    /// The form is unknown.
    #[error(
        "expected `RATE:STATUS`, `RATE:reset`, `RATE:slow_body[=MS]` or `RATE:hang`, got {0:?}"
    )]
    Form(String),
    /// The rate is no share.
    #[error("`rate` of the errors must be between 0 and 1")]
    Rate,
    /// The status cannot be sent.
    #[error("`status` of the errors must be between 400 and 599")]
    Status,
}

impl Faults {
    /// The fault of a request, if it gets one.
    pub fn draw(&self, rng: &mut Rng) -> Option<Fault> {
        (self.rate > 0.0 && rng.unit() < self.rate).then_some(self.fault)
    }

    fn checked(self) -> Result<Self, FaultsError> {
        if !(0.0..=1.0).contains(&self.rate) {
            return Err(FaultsError::Rate);
        }
        match self.fault {
            Fault::Status { status, .. } if !(400..600).contains(&status) => {
                Err(FaultsError::Status)
            }
            _ => Ok(self),
        }
    }
}

impl FromStr for Faults {
    type Err = FaultsError;

    fn from_str(text: &str) -> Result<Self, FaultsError> {
        let form = || FaultsError::Form(text.to_owned());
        let (rate, kind) = text.split_once(':').ok_or_else(form)?;
        let fault = match kind.split_once('=').unwrap_or((kind, "")) {
            ("reset", "") => Fault::Reset,
            ("hang", "") => Fault::Hang,
            ("slow_body", "") => Fault::SlowBody { millis: slow_millis() },
            ("slow_body", millis) => {
                Fault::SlowBody { millis: millis.parse().map_err(|_| form())? }
            }
            (status, "") => {
                Fault::Status { status: status.parse().map_err(|_| form())?, retry_after: None }
            }
            _ => return Err(form()),
        };
        Faults { rate: rate.trim().parse().map_err(|_| form())?, fault }.checked()
    }
}

#[derive(Deserialize)]
struct Table {
    rate: f64,
    #[serde(flatten)]
    fault: Option<Fault>,
}

impl<'de> Deserialize<'de> for Faults {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use serde::de::Error as _;
        let faults = match Value::deserialize(deserializer)? {
            Value::String(text) => text.parse(),
            table => {
                let has_kind = table.get("kind").is_some();
                let table = Table::deserialize(table).map_err(D::Error::custom)?;
                if has_kind && table.fault.is_none() {
                    return Err(D::Error::custom(
                        "`kind` of the errors must be status, reset, slow_body or hang",
                    ));
                }
                Faults { rate: table.rate, fault: table.fault.unwrap_or_default() }.checked()
            }
        };
        faults.map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_read() {
        let read =
            |json: &str| serde_json::from_str::<Faults>(json).map_err(|error| error.to_string());
        let status = Fault::Status { status: 503, retry_after: None };
        assert_eq!(read("\"0.5:503\""), Ok(Faults { rate: 0.5, fault: status }));
        assert_eq!(read(r#"{"rate":0.5,"kind":"status","status":503}"#), read("\"0.5:503\""));
        assert_eq!(read(r#"{"rate":1,"kind":"slow_body","ms":20}"#), read("\"1:slow_body=20\""));
        assert_eq!(read(r#"{"rate":1,"kind":"reset"}"#), read("\"1:reset\""));
        assert_eq!(read(r#"{"rate":0.1}"#).map(|faults| faults.fault), Ok(Fault::default()));
        assert!(read("\"often\"").is_err_and(|error| error.contains("got \"often\"")));
        assert!(read("\"2:reset\"").is_err_and(|error| error.contains("between 0 and 1")));
        assert!(read("\"0.1:200\"").is_err_and(|error| error.contains("between 400 and 599")));
        assert!(
            read(r#"{"rate":1,"kind":"explode"}"#)
                .is_err_and(|error| error.contains("must be status, reset"))
        );
    }

    #[test]
    fn faults_come_as_often_as_asked() {
        let faults: Faults = "0.25:reset".parse().expect("faults");
        let hits = (0..4000).filter(|key| faults.draw(&mut Rng::new(*key, 2)).is_some()).count();
        assert!((900..1100).contains(&hits), "{hits}");
        assert_eq!(Faults::default().draw(&mut Rng::new(0, 2)), None);
    }
}
