//! Records: few names, so that changes meet.

use posthaste_core::record::{Expected, RecordChange, RecordKey, RecordKind};

use super::Generator;
use crate::store::records;

impl Generator {
    pub(super) fn put_records(&mut self) -> records::Call {
        let count = self.rng.usize(1..4);
        let changes = (0..count).map(|_| RecordChange {
            key: self.record_key(),
            number: self.rng.i64(-2..3),
            value: (self.rng.u32(0..3) > 0).then(|| self.rng.u32(..).to_string()),
            expected: match self.rng.u32(0..3) {
                0 => Expected::Anything,
                1 => Expected::Absent,
                _ => Expected::Version(self.rng.i64(0..20)),
            },
        });
        let changes = changes.collect();
        let audit = self.rng.bool().then(|| self.audit("put records"));
        records::Call::Put { changes, audit, now: self.now }
    }

    pub(super) fn read_records(&mut self, limit: usize) -> records::Call {
        let kind = self.record_key().kind();
        match self.rng.u32(0..3) {
            0 => {
                let count = self.rng.usize(0..5);
                records::Call::Get { keys: (0..count).map(|_| self.record_key()).collect() }
            }
            1 => {
                let tenant = self.some_tenant();
                let after = self.rng.bool().then(|| self.record_key()).filter(|key| {
                    key.kind() == kind && (tenant.is_none() || key.tenant() == tenant.as_ref())
                });
                records::Call::Page { kind, tenant, after, limit }
            }
            _ => records::Call::Since { kind, version: self.rng.i64(-1..20), limit },
        }
    }

    fn record_key(&mut self) -> RecordKey {
        let kind = [RecordKind::Template, RecordKind::Contact][self.rng.usize(0..2)];
        let (tenant, name) = (self.some_tenant(), format!("name {}", self.rng.u32(0..3)));
        RecordKey::new(kind, tenant, name).expect("a plain name")
    }
}
