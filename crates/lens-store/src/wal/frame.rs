//! One frame: its head, and what the numbers in it mean.

/// Begins every file.
pub(super) const MAGIC: [u8; 8] = *b"LENSWAL1";
/// Before the body.
pub(super) const HEAD_BYTES: usize = 26;
/// Length and checksum.
pub(super) const PREFIX_BYTES: usize = 8;
/// No request is longer than this.
pub(super) const MAX_BODY_BYTES: usize = 1 << 28;

/// What a request carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    /// Spans.
    Traces,
    /// Log records.
    Logs,
    /// Metrics.
    Metrics,
}

/// How a request is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// Protobuf.
    #[default]
    Protobuf,
    /// OTLP's JSON.
    Json,
}

/// How a body is compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Not at all.
    #[default]
    Identity,
    /// gzip, of one member or several.
    Gzip,
    /// Zstandard, of one frame or several.
    Zstd,
}

/// What a body is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Encoding {
    /// Under the compression.
    pub format: Format,
    /// Around it.
    pub compression: Compression,
}

impl Encoding {
    /// Protobuf as it is.
    pub const PROTOBUF: Self =
        Self { format: Format::Protobuf, compression: Compression::Identity };
}

impl Signal {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Traces, Self::Logs, Self::Metrics];

    /// `traces`, `logs` or `metrics`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Logs => "logs",
            Self::Metrics => "metrics",
        }
    }

    pub(super) fn number(self) -> u8 {
        match self {
            Self::Traces => 1,
            Self::Logs => 2,
            Self::Metrics => 3,
        }
    }

    fn from_number(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.number() == number)
    }

    /// Path of its OTLP/HTTP request.
    pub fn path(self) -> &'static str {
        match self {
            Self::Traces => "/v1/traces",
            Self::Logs => "/v1/logs",
            Self::Metrics => "/v1/metrics",
        }
    }
}

impl Encoding {
    pub(super) fn number(self) -> u8 {
        let compression = match self.compression {
            Compression::Identity => 0,
            Compression::Gzip => 1,
            Compression::Zstd => 2,
        };
        compression << 4 | u8::from(self.format == Format::Json)
    }

    fn from_number(number: u8) -> Option<Self> {
        let format = match number & 15 {
            0 => Format::Protobuf,
            1 => Format::Json,
            _ => return None,
        };
        let compression = match number >> 4 {
            0 => Compression::Identity,
            1 => Compression::Gzip,
            2 => Compression::Zstd,
            _ => return None,
        };
        Some(Self { format, compression })
    }
}

/// What is known of a frame besides its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) seq: u64,
    pub(super) arrived_nanos: u64,
    pub(super) signal: Signal,
    pub(super) encoding: Encoding,
}

impl Head {
    /// The bytes before a body.
    pub(super) fn encode(&self, body: &[u8]) -> [u8; HEAD_BYTES] {
        let mut head = [0; HEAD_BYTES];
        head[8..16].copy_from_slice(&self.seq.to_le_bytes());
        head[16..24].copy_from_slice(&self.arrived_nanos.to_le_bytes());
        head[24] = self.signal.number();
        head[25] = self.encoding.number();
        let checksum = crc32c::crc32c_append(crc32c::crc32c(&head[PREFIX_BYTES..]), body);
        let length = (HEAD_BYTES - PREFIX_BYTES + body.len()) as u32;
        head[..4].copy_from_slice(&length.to_le_bytes());
        head[4..8].copy_from_slice(&checksum.to_le_bytes());
        head
    }

    /// Whether bytes that may be anything could be a frame not long after another: cheap, so that a long stretch of
    /// damage is searched in linear time.
    pub(super) fn follows(bytes: &[u8], last_seq: u64) -> bool {
        let seq = bytes.get(PREFIX_BYTES..).and_then(|bytes| bytes.first_chunk::<8>());
        let gap = seq.map_or(0, |seq| u64::from_le_bytes(*seq).saturating_sub(last_seq));
        (1..1 << 24).contains(&gap)
    }

    /// Head and length of the frame at the front of `bytes`, when it is whole and undamaged.
    pub(super) fn decode(bytes: &[u8]) -> Option<(Self, usize)> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        let (checksum, rest) = rest.split_first_chunk::<4>()?;
        let length = u32::from_le_bytes(*length) as usize;
        if !(HEAD_BYTES - PREFIX_BYTES..=HEAD_BYTES + MAX_BODY_BYTES).contains(&length) {
            return None;
        }
        let content = rest.get(..length)?;
        if crc32c::crc32c(content) != u32::from_le_bytes(*checksum) {
            return None;
        }
        let (seq, content) = content.split_first_chunk::<8>()?;
        let (arrived, content) = content.split_first_chunk::<8>()?;
        let head = Self {
            seq: u64::from_le_bytes(*seq),
            arrived_nanos: u64::from_le_bytes(*arrived),
            signal: Signal::from_number(*content.first()?)?,
            encoding: Encoding::from_number(*content.get(1)?)?,
        };
        Some((head, PREFIX_BYTES + length))
    }
}
