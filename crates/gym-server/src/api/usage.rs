//! Token counts and their sum, where unknown stays unknown.

use super::json::{Kind, kind, trusted};

/// The `usage` of a reply. `None` is unknown, not zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Of those, read from a cache.
    pub cached_tokens: Option<u64>,
    /// Tokens written.
    pub output_tokens: u64,
    /// Of those, reasoning.
    pub reasoning_tokens: Option<u64>,
    /// As the engine says; the sum of both in most cases.
    pub total_tokens: u64,
}

impl Usage {
    /// Reads the usage of a reply that was checked; `None` for anything else.
    pub fn read(raw: &str) -> Option<Self> {
        let mut usage = Usage::default();
        for (key, value) in trusted::members(raw)? {
            match &*key {
                "input_tokens" => usage.input_tokens = number(value).unwrap_or(0),
                "output_tokens" => usage.output_tokens = number(value).unwrap_or(0),
                "total_tokens" => usage.total_tokens = number(value).unwrap_or(0),
                "input_tokens_details" => {
                    usage.cached_tokens = trusted::member(value, "cached_tokens").and_then(number)
                }
                "output_tokens_details" => {
                    usage.reasoning_tokens =
                        trusted::member(value, "reasoning_tokens").and_then(number);
                }
                _ => {}
            }
        }
        Some(usage)
    }

    /// Adds another reply's counts: totals add, a detail unknown on either side becomes unknown.
    pub fn add(&mut self, other: Usage) {
        self.input_tokens += other.input_tokens;
        self.output_tokens += other.output_tokens;
        self.total_tokens += other.total_tokens;
        self.cached_tokens = self.cached_tokens.zip(other.cached_tokens).map(|(a, b)| a + b);
        self.reasoning_tokens =
            self.reasoning_tokens.zip(other.reasoning_tokens).map(|(a, b)| a + b);
    }

    /// The counts as a JSON object.
    pub fn to_json(self) -> String {
        let mut out = Vec::with_capacity(192);
        self.write(&mut out);
        String::from_utf8(out).unwrap_or_default()
    }

    /// Writes the counts as a JSON object.
    pub fn write(self, out: &mut Vec<u8>) {
        let detail = |out: &mut Vec<u8>, count| match count {
            Some(count) => write_count(out, count),
            None => out.extend_from_slice(b"null"),
        };
        out.extend_from_slice(b"{\"input_tokens\":");
        write_count(out, self.input_tokens);
        out.extend_from_slice(b",\"input_tokens_details\":{\"cached_tokens\":");
        detail(out, self.cached_tokens);
        out.extend_from_slice(b"},\"output_tokens\":");
        write_count(out, self.output_tokens);
        out.extend_from_slice(b",\"output_tokens_details\":{\"reasoning_tokens\":");
        detail(out, self.reasoning_tokens);
        out.extend_from_slice(b"},\"total_tokens\":");
        write_count(out, self.total_tokens);
        out.push(b'}');
    }
}

/// Writes a count in decimal.
pub(super) fn write_count(out: &mut Vec<u8>, mut count: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (count % 10) as u8;
        count /= 10;
        if count == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// A count, also when written as a float.
pub(crate) fn number(raw: &str) -> Option<u64> {
    if kind(raw) != Kind::Number {
        return None;
    }
    raw.parse().ok().or_else(|| {
        raw.parse::<f64>().ok().filter(|number| *number >= 0.0).map(|number| number as u64)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(cached: Option<u64>, reasoning: Option<u64>) -> Usage {
        Usage {
            input_tokens: 3,
            cached_tokens: cached,
            output_tokens: 2,
            reasoning_tokens: reasoning,
            total_tokens: 5,
        }
    }

    #[test]
    fn a_detail_that_one_side_does_not_know_is_unknown_in_the_sum() {
        let mut sum = usage(Some(1), Some(1));
        sum.add(usage(Some(2), None));
        assert_eq!(
            sum,
            Usage {
                input_tokens: 6,
                cached_tokens: Some(3),
                output_tokens: 4,
                reasoning_tokens: None,
                total_tokens: 10
            }
        );
    }

    #[test]
    fn what_is_written_reads_back() {
        for usage in [usage(None, Some(7)), usage(Some(0), None)] {
            assert_eq!(Usage::read(&usage.to_json()), Some(usage));
        }
        assert_eq!(Usage::read("null"), None);
    }
}
