//! Sessions: records in the store, so that every node knows them and a log out counts everywhere at once.
//!
//! A key has a fixed number of places for sessions. A login takes a free place, or the one of the oldest session, so sessions need no
//! cleaning and are bounded. The cookie names the place and holds a secret whose hash the record keeps. The record also keeps the
//! hash of the API key: a session is good for what its key is good for, and ends with it.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use posthaste_core::id::KeyId;
use posthaste_core::record::{Expected, Record, RecordChange, RecordKey, RecordKind};
use posthaste_core::time::Timestamp;
use posthaste_engine::acts::Actor;
use posthaste_engine::reads::ReadError;
use posthaste_engine::store::{Audit, StoreError};
use serde::{Deserialize, Serialize};

use super::cookie;
use crate::http::cursor::Position;
use crate::http::problem::{Kind, Problem, Result};
use crate::http::{Api, hex, unhex};
use crate::keys::{self, Caller, Hash};

/// How long a session lasts.
pub(super) const LENGTH: Duration = Duration::from_hours(12);
/// The most sessions of one key; a further login ends the oldest.
const PLACES: usize = 32;
/// How often a login looks for a place while others log in with the same key.
const MAX_TRIES: usize = 5;
/// What stands for the key that the process was given, in place of an id.
const GIVEN: &str = "given";

/// A session that is in force.
pub(crate) struct Session {
    pub(crate) caller: Arc<Caller>,
    pub(super) place: Place,
    secret: String,
}

/// Whose session it is, and which of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    owner: String,
    number: usize,
}

/// A session as it is kept.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kept {
    /// The hash of the secret in the cookie.
    secret: String,
    /// The hash of the API key.
    key: String,
    created_at: Timestamp,
    expires_at: Timestamp,
}

impl Place {
    fn key(&self) -> RecordKey {
        let name = format!("{}/{}", self.owner, self.number);
        RecordKey::new(RecordKind::Session, None, name).expect("an owner is short and plain")
    }

    fn all_of(owner: &str) -> Vec<Self> {
        (0..PLACES).map(|number| Self { owner: owner.to_owned(), number }).collect()
    }
}

/// What a cookie holds, sealed: one that this installation has not made costs no look into the store.
struct Ticket {
    place: Place,
    secret: String,
}

/// What the seal of a cookie is for, beside those of lists.
const SEAL: &str = "session";

impl Position for Ticket {
    fn write(&self) -> Vec<u8> {
        format!("{}.{}.{}", self.place.owner, self.place.number, self.secret).into_bytes()
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(bytes).ok()?.split('.');
        let (owner, number, secret) = (parts.next()?, parts.next()?, parts.next()?);
        let number = number.parse().ok().filter(|number| *number < PLACES)?;
        let is_owner = owner == GIVEN || owner.parse::<KeyId>().is_ok();
        let fits = is_owner && parts.next().is_none();
        let place = || Place { owner: owner.to_owned(), number };
        fits.then(|| Self { place: place(), secret: secret.to_owned() })
    }
}

impl Kept {
    fn of(record: &Record) -> Option<Self> {
        serde_json::from_str(record.value.as_deref()?).ok()
    }

    fn key_hash(&self) -> Option<Hash> {
        unhex(&self.key)?.try_into().ok()
    }
}

impl Session {
    /// What every form of this session holds, and no other site can know.
    pub(super) fn form_token(&self) -> String {
        form_token(&self.secret)
    }
}

/// The token of forms that belong to the secret of a cookie.
pub(super) fn form_token(secret: &str) -> String {
    hex(&keys::hash(&format!("form {secret}"))[..16])
}

fn owner_of(caller: &Caller) -> String {
    caller.key().map_or_else(|| GIVEN.to_owned(), |id| id.to_string())
}

fn audit(actor: &Actor, action: &str, now: Timestamp) -> Audit {
    Audit {
        tenant: actor.tenant.clone(),
        actor: actor.name.clone(),
        action: action.to_owned(),
        target: actor.key_id.clone().unwrap_or_else(|| actor.name.clone()),
        at: now,
        key_id: actor.key_id.clone(),
        address: actor.address.clone(),
    }
}

fn unavailable(error: StoreError) -> Problem {
    ReadError::from(error).into()
}

impl Api {
    /// The session that a request names in its cookie, if it is in force.
    pub(crate) async fn session_of(&self, headers: &HeaderMap) -> Result<Option<Session>> {
        let given = cookie::read(headers, cookie::SESSION);
        let given = given.and_then(|cookie| self.cursors().open::<Ticket>(SEAL, cookie));
        let Some(Ticket { place, secret }) = given else { return Ok(None) };
        let found = self.store.records(vec![place.key()]).await.map_err(unavailable)?;
        let Some(kept) = found.first().and_then(Kept::of) else { return Ok(None) };
        let is_right = kept.secret == hex(&keys::hash(&secret)) && self.engine.now() < kept.expires_at;
        let caller =
            kept.key_hash().filter(|_| is_right).and_then(|key| self.keys.find_hash(&self.engine, key));
        let same_owner = |caller: &Arc<Caller>| owner_of(caller) == place.owner;
        let caller = caller.filter(same_owner);
        Ok(caller.map(|caller| Session { caller, place, secret }))
    }

    /// Begins a session of a key that was checked. Returns what the cookie holds.
    pub(super) async fn begin_session(&self, caller: &Caller, key: Hash, actor: &Actor) -> Result<String> {
        let (owner, secret) = (owner_of(caller), hex(&keys::random::<32>()));
        for _ in 0..MAX_TRIES {
            let now = self.engine.now();
            let places = Place::all_of(&owner);
            let kept =
                self.store.records(places.iter().map(Place::key).collect()).await.map_err(unavailable)?;
            let (place, expected) = free(&places, &kept, now);
            let value = Kept {
                secret: hex(&keys::hash(&secret)),
                key: hex(&key),
                created_at: now,
                expires_at: now.later(LENGTH),
            };
            let value = serde_json::to_string(&value).expect("a session is made of texts");
            let change = RecordChange { key: place.key(), number: 0, value: Some(value), expected };
            let made = self
                .store
                .put_records(vec![change], Some(audit(actor, "login", now)), now)
                .await
                .map_err(unavailable)?;
            if made.first().is_some_and(Option::is_some) {
                return Ok(self.cursors().seal(SEAL, &Ticket { place, secret }));
            }
        }
        Err(Problem::new(Kind::KeyConflict, "too many people log in with this key at once: try again"))
    }

    /// Ends one session.
    pub(super) async fn end_session(&self, place: &Place, actor: &Actor) -> Result<()> {
        self.end_all(vec![place.clone()], "logout", actor).await
    }

    /// Ends every session of the caller's key.
    pub(super) async fn end_sessions(&self, caller: &Caller, actor: &Actor) -> Result<()> {
        self.end_all(Place::all_of(&owner_of(caller)), "logout-everywhere", actor).await
    }

    async fn end_all(&self, places: Vec<Place>, action: &str, actor: &Actor) -> Result<()> {
        let now = self.engine.now();
        let remove = |place: &Place| RecordChange {
            key: place.key(),
            number: 0,
            value: None,
            expected: Expected::Anything,
        };
        let there = self.store.records(places.iter().map(Place::key).collect()).await.map_err(unavailable)?;
        let is_there = |place: &&Place| there.iter().any(|record| record.key == place.key());
        let changes: Vec<RecordChange> = places.iter().filter(is_there).map(remove).collect();
        self.store.put_records(changes, Some(audit(actor, action, now)), now).await.map_err(unavailable)?;
        Ok(())
    }
}

/// A place that has no session in force, else the one whose session is oldest.
fn free(places: &[Place], kept: &[Record], now: Timestamp) -> (Place, Expected) {
    let taken = |place: &Place| kept.iter().find(|record| record.key == place.key());
    if let Some(place) = places.iter().find(|place| taken(place).is_none()) {
        return (place.clone(), Expected::Absent);
    }
    // What cannot be read or has expired goes first.
    let age =
        |record: &Record| Kept::of(record).filter(|kept| now < kept.expires_at).map(|kept| kept.created_at);
    let oldest = places.iter().filter_map(|place| taken(place).map(|record| (place, record)));
    let (place, record) =
        oldest.min_by_key(|(_, record)| age(record)).expect("there is a place, and all are taken");
    (place.clone(), Expected::Version(record.version))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Cursors;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_millis(second * 1000)
    }

    fn record(place: &Place, created: i64, version: i64) -> Record {
        let kept = Kept {
            secret: String::new(),
            key: String::new(),
            created_at: at(created),
            expires_at: at(created).later(LENGTH),
        };
        let value = Some(serde_json::to_string(&kept).unwrap());
        Record { key: place.key(), number: 0, value, version, changed: at(created) }
    }

    #[test]
    fn a_cookie_that_was_not_sealed_here_names_no_place() {
        let (here, elsewhere) = (Cursors::new(&[1; 32]), Cursors::new(&[2; 32]));
        let place = Place { owner: GIVEN.to_owned(), number: 31 };
        let ticket = Ticket { place: place.clone(), secret: "s".repeat(64) };
        let cookie = here.seal(SEAL, &ticket);
        assert_eq!(here.open::<Ticket>(SEAL, &cookie).unwrap().place, place);
        assert!(elsewhere.open::<Ticket>(SEAL, &cookie).is_none());
        assert!(here.open::<Ticket>("/v1/notifications", &cookie).is_none());
        let unsealed = format!("given.0.{}", "a".repeat(64));
        for bad in [unsealed.as_str(), "given", "", &cookie[2..]] {
            assert!(here.open::<Ticket>(SEAL, bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn a_ticket_names_a_place_of_a_key() {
        for (text, fits) in
            [("given.0.x", true), ("given.32.x", false), ("other.0.x", false), ("given.0.x.y", false)]
        {
            assert_eq!(Ticket::read(text.as_bytes()).is_some(), fits, "{text}");
        }
    }

    #[test]
    fn a_login_takes_a_free_place_then_an_expired_one_then_the_oldest() {
        let places = Place::all_of(GIVEN);
        let now = at(100_000);
        let mut kept: Vec<Record> = places
            .iter()
            .skip(1)
            .enumerate()
            .map(|(n, place)| record(place, 90_000 - n as i64, n as i64))
            .collect();
        assert_eq!(free(&places, &kept, now), (places[0].clone(), Expected::Absent));
        kept.push(record(&places[0], 95_000, 77));
        // The last of them is the oldest.
        assert_eq!(free(&places, &kept, now), (places[31].clone(), Expected::Version(30)));
        kept[5] = record(&places[6], 95_001, 78);
        kept[5].value = Some("{}".to_owned());
        assert_eq!(free(&places, &kept, now), (places[6].clone(), Expected::Version(78)));
    }

    #[test]
    fn the_token_of_forms_tells_nothing_of_the_secret() {
        assert_ne!(form_token("a"), form_token("b"));
        assert_eq!(form_token("a").len(), 32);
    }
}
