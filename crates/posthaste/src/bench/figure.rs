//! What is measured: names, and what they count.

/// Everything that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Figure {
    Bare,
    Single,
    Batch,
    SingleWithKey,
    BatchWithKey,
    BacklogSingle,
    BacklogBatch,
    AcceptP50,
    AcceptP99,
    AcceptMax,
    HalfLoad,
    HalfP50,
    HalfP99,
    HalfMax,
    LateP50,
    LateP99,
    LateMax,
    TimeBare,
    TimeServerSingle,
    TimeStoreSingle,
    TimeOthersSingle,
    TimeServerBatch,
    TimeStoreBatch,
    TimeOthersBatch,
    TimeShareSingle,
    TimeShareBatch,
    Start,
    PeakMemory,
    WrittenSingle,
    WrittenBatch,
    WalSingle,
    WalBatch,
    FileSize,
    TwoNodesSingle,
    TwoNodesBatch,
    TwoToOneSingle,
    TwoToOneBatch,
    TimeTwoNodesSingle,
    TimeTwoNodesBatch,
    FilledSingle,
    FilledBatch,
    FilledToEmptySingle,
    FilledToEmptyBatch,
    FilledStart,
    FilledPeakMemory,
    FilledFile,
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Notifications a second.
    Rate,
    Count,
    MicrosEach,
    Millis,
    Seconds,
    Bytes,
    BytesEach,
    Share,
}

impl Unit {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Rate => "1/s",
            Self::Count => "notifications",
            Self::MicrosEach => "µs/notification",
            Self::Millis => "ms",
            Self::Seconds => "s",
            Self::Bytes => "bytes",
            Self::BytesEach => "bytes/notification",
            Self::Share => "share",
        }
    }

    /// For people.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Rate | Self::Count | Self::BytesEach => format!("{value:.0}"),
            Self::MicrosEach => format!("{value:.1} µs"),
            Self::Millis => format!("{value:.1} ms"),
            Self::Seconds => format!("{value:.2} s"),
            Self::Bytes => format!("{:.0} MB", value / 1e6),
            Self::Share => format!("{value:.3}"),
        }
    }
}

impl Figure {
    /// Its name for programs, for people, and what it counts.
    #[expect(clippy::too_many_lines, reason = "it is a table with a line for each figure")]
    pub(super) const fn described(self) -> (&'static str, &'static str, Unit) {
        match self {
            Self::Bare => ("bare", "bare: sender to sink, requests/s", Unit::Rate),
            Self::Single => ("single", "single sends, notifications/s", Unit::Rate),
            Self::Batch => ("batch", "batches, notifications/s", Unit::Rate),
            Self::SingleWithKey => ("singleWithKey", "single sends with Idempotency-Key, /s", Unit::Rate),
            Self::BatchWithKey => ("batchWithKey", "batches with Idempotency-Key, /s", Unit::Rate),
            Self::BacklogSingle => ("backlogSingle", "undelivered as single sends end", Unit::Count),
            Self::BacklogBatch => ("backlogBatch", "undelivered as batches end", Unit::Count),
            Self::AcceptP50 => ("acceptP50", "accept at full load, p50", Unit::Millis),
            Self::AcceptP99 => ("acceptP99", "accept at full load, p99", Unit::Millis),
            Self::AcceptMax => ("acceptMax", "accept at full load, most", Unit::Millis),
            Self::HalfLoad => ("halfLoad", "half load, notifications/s", Unit::Rate),
            Self::HalfP50 => ("acceptHalfP50", "accept at half load, p50", Unit::Millis),
            Self::HalfP99 => ("acceptHalfP99", "accept at half load, p99", Unit::Millis),
            Self::HalfMax => ("acceptHalfMax", "accept at half load, most", Unit::Millis),
            Self::LateP50 => ("latenessP50", "lateness of retries at half load, p50", Unit::Millis),
            Self::LateP99 => ("latenessP99", "lateness of retries at half load, p99", Unit::Millis),
            Self::LateMax => ("latenessMax", "lateness of retries at half load, most", Unit::Millis),
            Self::TimeBare => ("cpuBare", "processor time each, bare", Unit::MicrosEach),
            Self::TimeServerSingle => {
                ("cpuServerSingle", "processor time each, single: server", Unit::MicrosEach)
            }
            Self::TimeStoreSingle => {
                ("cpuStoreSingle", "processor time each, single: PostgreSQL", Unit::MicrosEach)
            }
            Self::TimeOthersSingle => {
                ("cpuOthersSingle", "processor time each, single: sender, sink", Unit::MicrosEach)
            }
            Self::TimeServerBatch => {
                ("cpuServerBatch", "processor time each, batches: server", Unit::MicrosEach)
            }
            Self::TimeStoreBatch => {
                ("cpuStoreBatch", "processor time each, batches: PostgreSQL", Unit::MicrosEach)
            }
            Self::TimeOthersBatch => {
                ("cpuOthersBatch", "processor time each, batches: sender, sink", Unit::MicrosEach)
            }
            Self::TimeShareSingle => {
                ("cpuShareSingle", "bare's processor time to that of single", Unit::Share)
            }
            Self::TimeShareBatch => {
                ("cpuShareBatch", "bare's processor time to that of batches", Unit::Share)
            }
            Self::Start => ("start", "start until ready", Unit::Seconds),
            Self::PeakMemory => ("peakMemory", "most memory (VmHWM)", Unit::Bytes),
            Self::WrittenSingle => {
                ("writtenSingle", "bytes to disk (write_bytes) each, single", Unit::BytesEach)
            }
            Self::WrittenBatch => {
                ("writtenBatch", "bytes to disk (write_bytes) each, batches", Unit::BytesEach)
            }
            Self::WalSingle => ("walSingle", "bytes of the log (WAL) each, single", Unit::BytesEach),
            Self::WalBatch => ("walBatch", "bytes of the log (WAL) each, batches", Unit::BytesEach),
            Self::FileSize => ("fileSize", "bytes of the store each", Unit::BytesEach),
            Self::TwoNodesSingle => ("twoNodesSingle", "two nodes: single sends, /s", Unit::Rate),
            Self::TwoNodesBatch => ("twoNodesBatch", "two nodes: batches, /s", Unit::Rate),
            Self::TwoToOneSingle => ("twoNodesToOneSingle", "two nodes to one, single sends", Unit::Share),
            Self::TwoToOneBatch => ("twoNodesToOneBatch", "two nodes to one, batches", Unit::Share),
            Self::TimeTwoNodesSingle => {
                ("cpuTwoNodesSingle", "processor time each, two nodes, single: all", Unit::MicrosEach)
            }
            Self::TimeTwoNodesBatch => {
                ("cpuTwoNodesBatch", "processor time each, two nodes, batches: all", Unit::MicrosEach)
            }
            Self::FilledSingle => ("filledSingle", "filled store: single sends, /s", Unit::Rate),
            Self::FilledBatch => ("filledBatch", "filled store: batches, /s", Unit::Rate),
            Self::FilledToEmptySingle => {
                ("filledToEmptySingle", "filled to empty, single sends", Unit::Share)
            }
            Self::FilledToEmptyBatch => ("filledToEmptyBatch", "filled to empty, batches", Unit::Share),
            Self::FilledStart => ("filledStart", "filled store: start until ready", Unit::Seconds),
            Self::FilledPeakMemory => ("filledPeakMemory", "filled store: most memory (VmHWM)", Unit::Bytes),
            Self::FilledFile => ("filledFile", "filled store: its size", Unit::Bytes),
        }
    }

    /// Whether it is told as a share of the bare rate.
    pub(super) const fn is_against_bare(self) -> bool {
        matches!(
            self,
            Self::Single
                | Self::Batch
                | Self::SingleWithKey
                | Self::BatchWithKey
                | Self::TwoNodesSingle
                | Self::TwoNodesBatch
                | Self::FilledSingle
                | Self::FilledBatch
        )
    }
}
