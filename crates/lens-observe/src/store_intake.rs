//! A store as an intake.

use lens_store::store::{Refusal, Store};
use lens_store::wal;

use crate::intake::{Accepted, Compression, Form, Incoming, Intake, Refused, Signal};

impl Intake for Store {
    fn accept(&self, request: Incoming) -> Result<Accepted, Refused> {
        let Incoming { signal, compression, form, body, request } = request;
        let signal = match signal {
            Signal::Traces => wal::Signal::Traces,
            Signal::Metrics => wal::Signal::Metrics,
            Signal::Logs => wal::Signal::Logs,
        };
        let encoding = wal::Encoding {
            compression: match compression {
                Compression::Identity => wal::Compression::None,
                Compression::Gzip => wal::Compression::Gzip,
                Compression::Zstd => wal::Compression::Zstd,
            },
            format: match form {
                Form::Protobuf => wal::Format::Protobuf,
                Form::Json => wal::Format::Json,
            },
        };
        let appended = self.append(signal, encoding, body, request).map_err(refused)?;
        Ok(Accepted { rejected: appended.rejected, message: appended.reason })
    }
}

fn refused(refusal: Refusal) -> Refused {
    let reason = refusal.to_string();
    match refusal {
        Refusal::Overloaded { retry_after } => Refused::Overloaded { retry_after },
        Refusal::DiskFull { retry_after } => Refused::DiskFull { retry_after },
        Refusal::Unavailable { retry_after, .. } => Refused::Failed { reason, retry_after },
        Refusal::BadRequest(_) => Refused::Malformed(reason),
    }
}
