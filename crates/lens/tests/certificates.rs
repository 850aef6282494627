//! Variables for certificates, from the environment to the handshake.
//!
//! Telemetry is set up once per process, so each test runs itself again in a process of its own.

#[allow(dead_code, reason = "shared with the tests of collectors")]
#[path = "collector/child.rs"]
mod child;

use std::collections::BTreeMap;
use std::time::Duration;

use child::in_child;
use lens::config::LensConfig;
use lens::logs::Severity;
use lens::metrics::Counter;
use lens::{Group, Span, env_vars};
use lens_testing::OtlpSink;
use lens_testing::tls::{Authority, TlsFront};

const PATIENCE: Duration = Duration::from_secs(60);

static WORK: Group = Group::new("work");
static GROUPS: &[&Group] = &[&WORK];
static REQUESTS: Counter = Counter::new("test.requests", "{request}", "Requests");

const NAMES: [&str; 3] = [
    env_vars::OTEL_EXPORTER_OTLP_CERTIFICATE,
    env_vars::OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE,
    env_vars::OTEL_EXPORTER_OTLP_CLIENT_KEY,
];

fn files(authority: &Authority) -> [String; 3] {
    let (certificate, key) = authority.client();
    let text = |path: std::path::PathBuf| path.to_str().expect("UTF-8").to_owned();
    [text(authority.certificate()), text(certificate), text(key)]
}

/// Sends one of each signal to a receiver that asks for a certificate of `authority`.
fn every_signal_arrives(authority: &Authority, certificates: Vec<(String, String)>) {
    lens::register("test", GROUPS, &[("default", &["work"])]);
    let sink = OtlpSink::start().expect("a sink");
    let front = TlsFront::start(authority, sink.addresses().0, true);
    let basic = [
        (format!("{}{}", env_vars::NEMO_LENS, env_vars::suffix::ENABLED), "1".to_owned()),
        (format!("{}{}", env_vars::NEMO_LENS, env_vars::suffix::LOGS_ENABLED), "1".to_owned()),
        (
            env_vars::OTEL_EXPORTER_OTLP_ENDPOINT.to_owned(),
            format!("https://localhost:{}", front.port()),
        ),
    ];
    let variables: BTreeMap<String, String> = basic.into_iter().chain(certificates).collect();
    let (config, warnings) = LensConfig::from_env_map(&variables, &[env_vars::NEMO_LENS]);
    assert_eq!(warnings, []);
    let handle = lens::setup_telemetry(config).expect("starts");
    Span::start(&WORK, "one").end();
    REQUESTS.add(1, &[]);
    lens::logs::emit(Severity::Info, "hello", &[]);
    assert!(handle.shutdown(PATIENCE));
    assert_eq!((sink.counts().spans, sink.counts().logs), (1, 1));
    assert!(sink.metric_names().contains(&"test.requests".to_owned()));
}

#[test]
fn general_certificates_reach_the_handshake_of_every_signal() {
    in_child("general_certificates_reach_the_handshake_of_every_signal", || {
        let authority = Authority::new();
        let general = NAMES.map(str::to_owned).into_iter().zip(files(&authority));
        every_signal_arrives(&authority, general.collect());
    });
}

/// Guarantees: the general ones fit nobody, so a signal that used them would not arrive.
#[test]
fn certificates_of_a_signal_win_at_its_handshake() {
    in_child("certificates_of_a_signal_win_at_its_handshake", || {
        let (authority, stranger) = (Authority::new(), Authority::new());
        let mut variables: Vec<(String, String)> =
            NAMES.map(str::to_owned).into_iter().zip(files(&stranger)).collect();
        for signal in ["TRACES", "METRICS", "LOGS"] {
            for (name, file) in NAMES.iter().zip(files(&authority)) {
                let rest = name.strip_prefix(env_vars::OTEL_EXPORTER_OTLP).expect("its prefix");
                let own = format!("{}{signal}_{rest}", env_vars::OTEL_EXPORTER_OTLP);
                variables.push((own, file));
            }
        }
        every_signal_arrives(&authority, variables);
    });
}
