//! Descriptions of the types of core for OpenAPI. A name in the description is a name that the code reads or writes.

use std::borrow::Cow;

use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, OneOfBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

use crate::channel::Channel;
use crate::dead_letter::DeadLetterStatus;
use crate::destination::{DestinationKind, DestinationState, EventKind, Label};
use crate::failure::FailureType;
use crate::id::{DeadLetterId, DestinationId, GroupId, KeyId, NotificationId, OperationId};
use crate::notification::{Priority, Tenant};
use crate::operation::{Action, OperationState};
use crate::policy::quick::{QuickBackoff, When};
use crate::policy::{Policy, PolicyLayer, Preset, Preview, PreviewedAttempt, Scope};
use crate::reason::Reason;
use crate::role::Role;
use crate::state::State;
use crate::strategy::Strategy;
use crate::time::Timestamp;

/// Describes a type by a schema of its own, under a name of its own.
macro_rules! described {
    ($type:ty, $name:literal, $schema:expr) => {
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                $schema.into()
            }
        }

        impl ToSchema for $type {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }
        }
    };
}

/// Describes a type as another one, which has no values.
macro_rules! described_as {
    ($type:ty, $name:literal, $as:ty) => {
        impl PartialSchema for $type {
            fn schema() -> RefOr<Schema> {
                <$as>::schema()
            }
        }

        impl ToSchema for $type {
            fn name() -> Cow<'static, str> {
                Cow::Borrowed($name)
            }

            fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
                <$as>::schemas(schemas);
            }
        }
    };
}

mod simulation;

fn text(description: &str) -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String).description(Some(description))
}

fn names(description: &str, names: impl IntoIterator<Item = &'static str>) -> ObjectBuilder {
    text(description).enum_values(Some(names))
}

fn id(prefix: &str) -> ObjectBuilder {
    let description = format!("`{prefix}` and 26 characters");
    text(&description).pattern(Some(format!("^{prefix}[0-9a-hjkmnp-tv-z]{{26}}$")))
}

/// What `Tenant` reads.
const TENANT: &str = "[A-Za-z0-9._-]{1,64}";

fn scope_pattern() -> String {
    let channels = Channel::ALL.map(Channel::name).join("|");
    format!("^(global|channel:({channels})|tenant:{TENANT}|template:.+)$")
}

described!(NotificationId, "NotificationId", id(Self::PREFIX));
described!(DeadLetterId, "DeadLetterId", id(Self::PREFIX));
described!(GroupId, "GroupId", id(Self::PREFIX));
described!(KeyId, "KeyId", id(Self::PREFIX));
described!(OperationId, "OperationId", id(Self::PREFIX));
described!(DestinationId, "DestinationId", id(Self::PREFIX));
described!(
    DestinationKind,
    "DestinationKind",
    names("What can be down as a whole", Self::ALL.map(Self::name))
);
described!(
    DestinationState,
    "DestinationState",
    names("Whether anything is sent to it", Self::ALL.map(Self::name))
);
described!(Label, "DestinationLabel", names("Its state in a word", Self::ALL.map(Self::name)));
described!(
    EventKind,
    "DestinationEventKind",
    names("What happened to a destination", Self::ALL.map(Self::name))
);
described!(Action, "RetryAction", names("What is done to each item", Self::ALL.map(Self::name)));
described!(
    OperationState,
    "RetryOperationState",
    names("Where an operation stands", Self::ALL.map(Self::name))
);
described!(Channel, "Channel", names("How a notification reaches its recipient", Self::ALL.map(Self::name)));
described!(State, "State", names("Where a notification stands", Self::ALL.map(Self::name)));
described!(FailureType, "FailureType", names("How an attempt failed", Self::ALL.map(Self::name)));
described!(Reason, "ReasonCode", names("Why a notification ended undelivered", Self::ALL.map(Self::code)));
described!(Strategy, "Strategy", names("How delays grow", Self::ALL.map(Self::name)));
described!(Preset, "Preset", names("A policy with a name", Self::ALL.map(Self::name)));
described!(Role, "Role", names("What a key may do", Self::NAMED.map(Self::name)));
described!(
    Scope,
    "Scope",
    text(
        "`global`, `channel:x`, `tenant:x` or `template:x` (a template of the caller's tenant; to a key for all tenants \
         that of every tenant, as `template:*/x`), or `template:tenant/x`"
    )
    .pattern(Some(scope_pattern()))
);
described!(Tenant, "Tenant", text("The name of a tenant").pattern(Some(format!("^{TENANT}$"))));
described!(
    Timestamp,
    "Timestamp",
    text("RFC 3339, UTC, milliseconds").format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)))
);
described!(Priority, "Priority", names("They weigh 8:4:2:1", ["critical", "high", "normal", "low"]));
described!(
    DeadLetterStatus,
    "DeadLetterStatus",
    names("Where a dead letter stands", ["pending", "requeued", "cancelled"])
);
described!(QuickBackoff, "QuickBackoff", names("How waits grow", ["constant", "linear", "exponential"]));
described!(When, "QuickWhen", names("Which failed tries may be repeated", ["any", "unsent"]));

/// A duration as the API takes and shows it.
pub struct DurationText;

/// What `duration::parse` reads, but for its bounds: a number with or without a unit, or a span.
const DURATION: &str =
    r"^\s*([0-9]+(\.[0-9]+)?(ms|s|m|h|d)?|([0-9]+\.)?[0-9]+:[0-9]+(:[0-9]+(\.[0-9]+)?)?)\s*$";

described!(
    DurationText,
    "Duration",
    OneOfBuilder::new()
        .item(ObjectBuilder::new().schema_type(Type::String).pattern(Some(DURATION)))
        .item(ObjectBuilder::new().schema_type(Type::Number).minimum(Some(0)))
        .description(Some(
            "`500ms`, `30s`, `5m`, `4h`, `1d`, a span such as `00:00:30`, or a number of seconds"
        ))
);

/// A time, or a duration from now, as the API takes it. No text is both: the checkers of many clients pass over `format`.
pub struct TimeOrDuration;

/// What `Timestamp` reads, but for days that do not exist.
const TIME: &str =
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})$";
/// What `duration::with_unit` reads, but for its bounds.
const DURATION_WITH_UNIT: &str =
    r"^\s*([0-9]+(\.[0-9]+)?(ms|s|m|h|d)|([0-9]+\.)?[0-9]+:[0-9]+(:[0-9]+(\.[0-9]+)?)?)\s*$";

described!(
    TimeOrDuration,
    "TimeOrDuration",
    OneOfBuilder::new()
        .item(text("A time, RFC 3339").pattern(Some(TIME)))
        .item(text("A duration with a unit, or a span").pattern(Some(DURATION_WITH_UNIT)))
        .description(Some("A time such as `2027-01-31T12:00:00Z`, or a duration from now such as `90d`"))
);

/// When something begins or ends, as a send takes it.
pub struct TimeFromAcceptance;

described!(
    TimeFromAcceptance,
    "TimeFromAcceptance",
    OneOfBuilder::new()
        .item(text("A time, RFC 3339").pattern(Some(TIME)))
        .item(text("A duration from acceptance, with a unit, or a span").pattern(Some(DURATION_WITH_UNIT)))
        .item(
            ObjectBuilder::new()
                .schema_type(Type::Number)
                .minimum(Some(0))
                .maximum(Some(315_360_000))
                .description(Some("Seconds from acceptance"))
        )
        .description(Some(
            "A time such as `2027-01-31T12:00:00Z`, or a duration from acceptance such as `15m`"
        ))
);

/// Jitter is a name, or an object with one field.
struct JitterSchema;
/// The names of jitter.
struct JitterName;

described!(
    JitterName,
    "JitterName",
    names("Jitter that needs no figure", ["none", "full", "equal", "decorrelated"])
);

/// Up to so much is added.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the fields")]
struct JitterPlus {
    plus: DurationText,
}

/// Up to so much of the delay is added or taken away.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the fields")]
struct JitterPercent {
    #[schema(minimum = 0, maximum = 100)]
    percent: f64,
}

impl PartialSchema for JitterSchema {
    fn schema() -> RefOr<Schema> {
        let forms = ["JitterName", "JitterPlus", "JitterPercent"];
        let all =
            forms.into_iter().fold(OneOfBuilder::new(), |all, form| all.item(Ref::from_schema_name(form)));
        all.description(Some("What is added to a delay at random")).into()
    }
}

impl ToSchema for JitterSchema {
    fn name() -> Cow<'static, str> {
        Cow::Borrowed("Jitter")
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        schemas.push(("JitterName".to_owned(), JitterName::schema()));
        schemas.push(("JitterPlus".to_owned(), JitterPlus::schema()));
        schemas.push(("JitterPercent".to_owned(), JitterPercent::schema()));
    }
}

// As `PolicyLayer::from_json` reads them.
/// When and how often is tried. What is left out comes from the next wider scope.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it only describes the fields")]
struct PolicySchema {
    preset: Option<Preset>,
    strategy: Option<Strategy>,
    /// The delay after the first failed attempt.
    initial_delay: Option<DurationText>,
    /// The factor of exponential delays.
    #[schema(minimum = 1)]
    multiplier: Option<f64>,
    /// The cap of exponential and linear delays.
    maximum_delay: Option<DurationText>,
    /// The delays of the strategy `schedule`; the last one repeats.
    #[schema(value_type = Option<Vec<DurationText>>, max_items = 100)]
    schedule: Option<Vec<DurationText>>,
    /// Attempts of one generation, the first included.
    #[schema(minimum = 1, maximum = 1000)]
    max_attempts: Option<u32>,
    /// `maxAttempts` - 1; give one of the two.
    #[schema(maximum = 999)]
    max_retries: Option<u32>,
    jitter: Option<JitterSchema>,
    /// How long one try may take. A notification, template or tenant may ask for up to `engine.longest_timeout` (1m),
    /// `global` and `channel:x` for up to 10m.
    timeout: Option<DurationText>,
    /// How long a notification may wait in all.
    max_age: Option<DurationText>,
    /// Whether a notification that is given up becomes a dead letter.
    dead_letter: Option<bool>,
    /// Whether `Retry-After` is a lower bound for scheduled retries.
    honour_retry_after: Option<bool>,
    /// Upper bound on `Retry-After`.
    maximum_retry_after: Option<DurationText>,
    quick: Option<QuickTries>,
    retry_on: Option<RetryOn>,
}

/// Repeats inside one attempt.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it only describes the fields")]
struct QuickTries {
    /// Number of repeats; the first try is not counted.
    #[schema(maximum = 20)]
    tries: Option<u32>,
    /// The wait before the first repeat.
    delay: Option<DurationText>,
    backoff: Option<QuickBackoff>,
    /// Whether a wait is random, between zero and its length.
    jitter: Option<bool>,
    /// Whether `Retry-After` is a lower bound for a wait.
    retry_after: Option<bool>,
    /// Statuses that are repeated in addition to the defaults.
    #[schema(max_items = 100)]
    status_codes: Option<Vec<u16>>,
    when: Option<When>,
    /// Upper bound on the sum of all waits.
    limit: Option<DurationText>,
}

/// Which failure types are retried.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "it only describes the fields")]
struct RetryOn {
    unknown: Option<bool>,
    temporary: Option<bool>,
    permanent: Option<bool>,
    timeout: Option<bool>,
    rate_limit: Option<bool>,
    network_failure: Option<bool>,
    authentication_failure: Option<bool>,
    invalid_recipient: Option<bool>,
    quota_exceeded: Option<bool>,
}

described_as!(PolicyLayer, "Policy", PolicySchema);
described_as!(Policy, "Policy", PolicySchema);

/// When a policy makes its attempts.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the fields")]
struct PreviewSchema {
    attempts: Vec<PreviewedAttempt>,
    /// The latest time of the last attempt, as a duration such as `90s`.
    window: String,
}

/// Times are relative to the first attempt.
#[derive(ToSchema)]
#[expect(dead_code, reason = "it only describes the fields")]
struct PreviewedAttemptSchema {
    #[schema(minimum = 1)]
    number: u32,
    /// If every delay is the shortest, as a duration such as `90s`.
    earliest: String,
    /// If every delay is the longest, as a duration such as `90s`.
    latest: String,
}

described_as!(Preview, "Preview", PreviewSchema);
described_as!(PreviewedAttempt, "PreviewedAttempt", PreviewedAttemptSchema);
