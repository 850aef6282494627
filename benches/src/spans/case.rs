//! One case in a process of its own: every library owns what is global in its process.

use std::path::Path;

use crate::subjects::fastrace::Fastrace;
use crate::subjects::lens::{Lens, Ring};
use crate::subjects::otel::{Otel, Style};
use crate::subjects::tracing::Tracing;
use crate::workload::{Destination, Subject, Transport, WITH_CONTEXT};
use crate::{Outcome, Sample, awaits, cost, disabled, load};

/// Runs `$run` with a subject by its name.
macro_rules! with_subject {
    ($name:expr, $destination:expr, |$subject:ident| $run:expr) => {{
        let destination = $destination;
        match $name {
            "lens" => {
                let $subject = &Lens::start(&destination, Ring::Private)?;
                $run
            }
            "lens-shared" => {
                let $subject = &Lens::start(&destination, Ring::Shared)?;
                $run
            }
            "fastrace" => {
                let $subject = &Fastrace::start();
                $run
            }
            "fastrace-otel" => {
                let $subject = &Fastrace::with_opentelemetry(&destination)?;
                $run
            }
            "otel" => {
                let $subject = &Otel::start(&destination, Style::Active)?;
                $run
            }
            "otel-explicit" => {
                let $subject = &Otel::start(&destination, Style::Explicit)?;
                $run
            }
            "tracing-otel" => {
                let $subject = &Tracing::start(&destination)?;
                $run
            }
            other => Err(format!("unknown subject {other}").into()),
        }
    }};
}

fn warm(subject: &impl Subject, attributes: &str) -> Outcome<Sample> {
    match attributes {
        "0" => cost::warm::<_, 0>(subject),
        "4" => cost::warm::<_, 4>(subject),
        "8" => cost::warm::<_, 8>(subject),
        _ => cost::warm::<_, WITH_CONTEXT>(subject),
    }
}

/// Runs a case and prints what it measured as one line.
pub fn run(arguments: &[String], sink: &Path) -> Outcome<()> {
    let [kind, subject, variant] = arguments else {
        return Err("usage: spans case KIND SUBJECT VARIANT".into());
    };
    let (kind, subject, variant) = (kind.as_str(), subject.as_str(), variant.as_str());
    let counted = Destination::Counted;
    let sample = match kind {
        "off" if variant == "0" => disabled::run::<0>(subject),
        "off" => disabled::run::<4>(subject),
        "warm" => with_subject!(subject, counted, |subject| warm(subject, variant)),
        "threads" => with_subject!(subject, counted, |subject| cost::two_threads::<_, 4>(subject)),
        "cold" => with_subject!(subject, counted, |subject| cost::cold::<_, 4>(subject)),
        "awaits" => awaits::run(subject),
        "wire" | "paced" | "flat-out" | "slow-sink" => {
            let transport = if variant == "grpc" { Transport::Grpc } else { Transport::Http };
            let receiver = load::receiver(kind == "slow-sink", sink)?;
            let endpoint = receiver.endpoint(transport)?;
            let destination = Destination::Wire { transport, endpoint };
            with_subject!(subject, destination, |subject| match kind {
                "wire" => load::end_to_end(subject, receiver),
                "paced" => load::run(subject, receiver, load::PACED),
                "flat-out" => load::run(subject, receiver, load::FLAT_OUT),
                _ => load::run(subject, receiver, load::SLOW),
            })
        }
        other => Err(format!("unknown case {other}").into()),
    }?;
    println!("{}", sample.to_json());
    Ok(())
}
