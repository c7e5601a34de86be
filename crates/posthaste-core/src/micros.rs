//! Times as whole microseconds in JSON, so that what is read back is what was written.

use serde::{Deserialize, Deserializer, Serializer};

use crate::time::Timestamp;

pub(crate) fn serialize<S: Serializer>(time: &Timestamp, out: S) -> Result<S::Ok, S::Error> {
    out.serialize_i64(time.as_micros())
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Timestamp, D::Error> {
    i64::deserialize(from).map(Timestamp::from_micros)
}

pub(crate) mod maybe {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use crate::time::Timestamp;

    pub(crate) fn serialize<S: Serializer>(time: &Option<Timestamp>, out: S) -> Result<S::Ok, S::Error> {
        time.map(Timestamp::as_micros).serialize(out)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
        Ok(Option::<i64>::deserialize(from)?.map(Timestamp::from_micros))
    }
}
