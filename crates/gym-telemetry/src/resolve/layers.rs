//! Looking a setting up, layer by layer.

use std::collections::BTreeMap;

use super::{Fault, SignalSettings, parse_seconds};
use crate::{
    config::{BOOL_EXPECTED, Exporter, TelemetryConfig, parse_bool},
    origin::{Origin, Sourced},
    secret::{MASK, is_secret_key},
};

/// The layers of one resolution, and what was wrong with them so far.
pub(super) struct Layers<'a> {
    env: &'a BTreeMap<String, String>,
    block: &'a TelemetryConfig,
    defaults: TelemetryConfig,
    pub(super) faults: Vec<Fault>,
    pub(super) ignored: Vec<Fault>,
    /// What is taken as it is and will not do what was meant.
    pub(super) cautions: Vec<String>,
}

impl<'a> Layers<'a> {
    pub(super) fn new(env: &'a BTreeMap<String, String>, block: &'a TelemetryConfig) -> Self {
        Layers {
            env,
            block,
            defaults: TelemetryConfig::default(),
            faults: Vec::new(),
            ignored: Vec::new(),
            cautions: Vec::new(),
        }
    }

    pub(super) fn block(&self) -> &'a TelemetryConfig {
        self.block
    }

    /// A variable's value; blank is unset.
    pub(super) fn variable(&self, name: &str) -> Option<&'a str> {
        self.env.get(name).map(String::as_str).filter(|value| !value.trim().is_empty())
    }

    /// [`Origin::Block`] when the block says something about a key, else [`Origin::Default`].
    ///
    /// A block made in code says what differs from the default.
    pub(super) fn block_origin(&self, key: &str) -> Origin {
        let said = self.block.written.contains(key) || self.block.differs_from(&self.defaults, key);
        if said { Origin::Block } else { Origin::Default }
    }

    /// A setting of ours: its two variables, then the block (whose value is the default when it
    /// says nothing).
    pub(super) fn gym<T>(
        &mut self,
        names: [&'static str; 2],
        parse: impl Fn(&str) -> Option<T>,
        expected: &'static str,
        (key, block): (&'static str, T),
    ) -> Sourced<T> {
        for name in names {
            let Some(text) = self.variable(name) else { continue };
            match parse(text) {
                Some(value) => return Sourced::new(value, Origin::Variable(name)),
                None => self.faults.push(fault(name, text, expected)),
            }
        }
        Sourced::new(block, self.block_origin(key))
    }

    pub(super) fn switch(
        &mut self,
        names: [&'static str; 2],
        block: (&'static str, bool),
    ) -> Sourced<bool> {
        self.gym(names, parse_bool, BOOL_EXPECTED, block)
    }

    pub(super) fn text(
        &mut self,
        names: [&'static str; 2],
        (key, block): (&'static str, &str),
    ) -> Sourced<String> {
        self.gym(names, |text| Some(text.trim().to_owned()), "a string", (key, block.to_owned()))
    }

    pub(super) fn seconds(
        &mut self,
        names: [&'static str; 2],
        block: (&'static str, f64),
    ) -> Sourced<f64> {
        self.gym(names, parse_seconds, "a number of seconds above 0", block)
    }

    /// A value that only the environment gives, and that may be absent.
    pub(super) fn maybe(&self, names: &[&'static str]) -> Sourced<Option<String>> {
        for name in names.iter().copied() {
            if let Some(text) = self.variable(name) {
                return Sourced::new(Some(text.trim().to_owned()), Origin::Variable(name));
            }
        }
        Sourced::new(None, Origin::Default)
    }

    /// A standard setting: its variables, the block's value if it says something, the default.
    pub(super) fn standard<T>(
        &mut self,
        names: &[&'static str],
        parse: impl Fn(&str) -> Option<T>,
        expected: &'static str,
        block: Option<T>,
        default: T,
    ) -> Sourced<T> {
        for name in names.iter().copied() {
            let Some(text) = self.variable(name) else { continue };
            match parse(text) {
                Some(value) => return Sourced::new(value, Origin::Variable(name)),
                None => self.ignore(fault(name, text, expected)),
            }
        }
        match block {
            Some(value) => Sourced::new(value, Origin::Block),
            None => Sourced::new(default, Origin::Default),
        }
    }

    /// Notes a standard variable once, however many signals read it.
    fn ignore(&mut self, fault: Fault) {
        if !self.ignored.contains(&fault) {
            self.ignored.push(fault);
        }
    }

    /// A signal: `OTEL_<SIGNAL>_EXPORTER=none` beats its switch; any other value of it is the
    /// exporter unless one of Gym's variables names one.
    pub(super) fn signal(
        &mut self,
        names: [&'static str; 2],
        block: (&'static str, bool),
        exporter_variable: &'static str,
        exporter: &Sourced<Exporter>,
    ) -> SignalSettings {
        let enabled = self.switch(names, block);
        let Some(text) = self.variable(exporter_variable) else {
            return SignalSettings { enabled, exporter: exporter.clone() };
        };
        let origin = Origin::Variable(exporter_variable);
        if text.trim().eq_ignore_ascii_case("none") {
            return SignalSettings {
                enabled: Sourced::new(false, origin),
                exporter: Sourced::new(Exporter::None, origin),
            };
        }
        let Some(named) = Exporter::parse(text) else {
            self.ignore(fault(exporter_variable, text, "`otlp`, `console` or `none`"));
            return SignalSettings { enabled, exporter: exporter.clone() };
        };
        let exporter = match exporter.origin {
            Origin::Variable(_) => exporter.clone(),
            _ => Sourced::new(named, origin),
        };
        SignalSettings { enabled, exporter }
    }
}

fn fault(variable: &'static str, text: &str, expected: &'static str) -> Fault {
    let value = if is_secret_key(variable) { MASK.to_owned() } else { text.to_owned() };
    Fault { variable, value, expected }
}
