//! The figures of the bench: names and units.

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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    /// Notifications per second.
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
    /// Name in JSON, name in the report, unit.
    pub(super) const fn described(self) -> (&'static str, &'static str, Unit) {
        match self {
            Self::Bare => ("bare", "bare: sender to sink, requests/s", Unit::Rate),
            Self::Single => ("single", "single sends, notifications/s", Unit::Rate),
            Self::Batch => ("batch", "batches, notifications/s", Unit::Rate),
            Self::SingleWithKey => ("singleWithKey", "single sends with Idempotency-Key, /s", Unit::Rate),
            Self::BatchWithKey => ("batchWithKey", "batches with Idempotency-Key, /s", Unit::Rate),
            Self::BacklogSingle => ("backlogSingle", "undelivered at the end of single sends", Unit::Count),
            Self::BacklogBatch => ("backlogBatch", "undelivered at the end of batches", Unit::Count),
            Self::AcceptP50 => ("acceptP50", "accept at full load, p50", Unit::Millis),
            Self::AcceptP99 => ("acceptP99", "accept at full load, p99", Unit::Millis),
            Self::AcceptMax => ("acceptMax", "accept at full load, max", Unit::Millis),
            Self::HalfLoad => ("halfLoad", "half load, notifications/s", Unit::Rate),
            Self::HalfP50 => ("acceptHalfP50", "accept at half load, p50", Unit::Millis),
            Self::HalfP99 => ("acceptHalfP99", "accept at half load, p99", Unit::Millis),
            Self::HalfMax => ("acceptHalfMax", "accept at half load, max", Unit::Millis),
            Self::LateP50 => ("latenessP50", "lateness of retries at half load, p50", Unit::Millis),
            Self::LateP99 => ("latenessP99", "lateness of retries at half load, p99", Unit::Millis),
            Self::LateMax => ("latenessMax", "lateness of retries at half load, max", Unit::Millis),
            Self::TimeBare => ("cpuBare", "CPU time each, bare", Unit::MicrosEach),
            Self::TimeServerSingle => ("cpuServerSingle", "CPU time each, single: server", Unit::MicrosEach),
            Self::TimeStoreSingle => {
                ("cpuStoreSingle", "CPU time each, single: PostgreSQL", Unit::MicrosEach)
            }
            Self::TimeOthersSingle => {
                ("cpuOthersSingle", "CPU time each, single: sender, sink", Unit::MicrosEach)
            }
            Self::TimeServerBatch => ("cpuServerBatch", "CPU time each, batches: server", Unit::MicrosEach),
            Self::TimeStoreBatch => ("cpuStoreBatch", "CPU time each, batches: PostgreSQL", Unit::MicrosEach),
            Self::TimeOthersBatch => {
                ("cpuOthersBatch", "CPU time each, batches: sender, sink", Unit::MicrosEach)
            }
            Self::TimeShareSingle => ("cpuShareSingle", "CPU time: bare to single", Unit::Share),
            Self::TimeShareBatch => ("cpuShareBatch", "CPU time: bare to batches", Unit::Share),
            Self::Start => ("start", "start until ready", Unit::Seconds),
            Self::PeakMemory => ("peakMemory", "peak memory (VmHWM)", Unit::Bytes),
            Self::WrittenSingle => {
                ("writtenSingle", "written to disk (write_bytes) each, single", Unit::BytesEach)
            }
            Self::WrittenBatch => {
                ("writtenBatch", "written to disk (write_bytes) each, batches", Unit::BytesEach)
            }
            Self::WalSingle => ("walSingle", "written to the WAL each, single", Unit::BytesEach),
            Self::WalBatch => ("walBatch", "written to the WAL each, batches", Unit::BytesEach),
            Self::FileSize => ("fileSize", "store size each", Unit::BytesEach),
            Self::TwoNodesSingle => ("twoNodesSingle", "two nodes: single sends, /s", Unit::Rate),
            Self::TwoNodesBatch => ("twoNodesBatch", "two nodes: batches, /s", Unit::Rate),
            Self::TwoToOneSingle => ("twoNodesToOneSingle", "two nodes to one, single sends", Unit::Share),
            Self::TwoToOneBatch => ("twoNodesToOneBatch", "two nodes to one, batches", Unit::Share),
            Self::TimeTwoNodesSingle => {
                ("cpuTwoNodesSingle", "CPU time each, two nodes, single: all", Unit::MicrosEach)
            }
            Self::TimeTwoNodesBatch => {
                ("cpuTwoNodesBatch", "CPU time each, two nodes, batches: all", Unit::MicrosEach)
            }
            Self::FilledSingle => ("filledSingle", "filled store: single sends, /s", Unit::Rate),
            Self::FilledBatch => ("filledBatch", "filled store: batches, /s", Unit::Rate),
            Self::FilledToEmptySingle => {
                ("filledToEmptySingle", "filled to empty, single sends", Unit::Share)
            }
            Self::FilledToEmptyBatch => ("filledToEmptyBatch", "filled to empty, batches", Unit::Share),
            Self::FilledStart => ("filledStart", "filled store: start until ready", Unit::Seconds),
            Self::FilledPeakMemory => ("filledPeakMemory", "filled store: peak memory (VmHWM)", Unit::Bytes),
            Self::FilledFile => ("filledFile", "filled store: size", Unit::Bytes),
        }
    }

    /// Whether it is also shown as a share of the bare rate.
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
