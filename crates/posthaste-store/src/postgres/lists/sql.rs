//! The statements of the lists.
//!
//! A statement has two parts: `c`, the keys of the rows that are read, from index ranges; and the columns of
//! those that match the filter. Each returns `looked_at`, the number of keys, and the last of them with every
//! row, or with one empty row if none matches.
//!
//! A range is bounded by pairs such as `(flow, id) < (.., ..)` and ordered by both columns, so that only its
//! own index provides the order: an index on the id alone would walk the rows of others.

/// The conditions of a filter on the flow `f` and the wide row `n`.
macro_rules! wanted {
    () => {
        "($6::text is null or f.tenant = $6)
         and ($7::smallint[] is null or f.channel = any($7))
         and ($8::text[] is null or f.destination = any($8))
         and ($9::text[] is null or n.template = any($9))
         and ($10::text is null
             or strpos(lower(n.recipient collate \"C\"), $10) > 0
             or strpos(lower(n.subject collate \"C\"), $10) > 0
             or strpos(lower(n.event_key collate \"C\"), $10) > 0
             or strpos(lower(n.correlation_id collate \"C\"), $10) > 0)"
    };
}

/// The conditions of a filter on a notification `n`, its flow `f`, its queue row `q` and its ended row `e`.
macro_rules! wanted_notification {
    () => {
        concat!(
            wanted!(),
            "
             and ($11::smallint[] is null or $11 @> array[
                 case
                     when q.id is null then e.state
                     when q.lane = 0 then case when q.node is null then 0 else 1 end
                     else case when q.node is null then 3 else 4 end
                 end::smallint])
             and ($12::text[] is null or e.reason = any($12))
             and ($13::smallint[] is null and $14::integer[] is null or exists (
                 select
                 from (
                     select e.failure, e.status_code
                     where e.failure is not null
                     union all
                     -- Queued rows, and ended rows of older versions, have these values only in their
                     -- attempts.
                     (select a.failure, a.status_code
                     from attempt a
                     where a.notification = n.id
                     and e.failure is null
                     and e.state is distinct from 2
                     order by a.generation desc, a.number desc
                     limit 1)) as last (failure, status_code)
                 where last.failure is not null
                 and ($13 is null or last.failure = any($13))
                 and ($14 is null or last.status_code = any($14))))"
        )
    };
}

/// The notifications of `c`, each with its current row and, looked up for the rows that are returned, its last
/// attempt.
macro_rules! notifications {
    ($keys:expr) => {
        concat!(
            "with c as materialized (",
            $keys,
            ")
             select (select count(*) from c), (select id from c order by id limit 1), t.*, l.*
             from (select) as always
             left join (
                 select n.id, ",
            $crate::postgres::rows::wide_columns!(),
            ", ",
            $crate::postgres::reads::place_columns!(),
            "
                 from c
                 join notification n on n.id = any(array[c.id])
                 join flow f on f.id = any(array[n.flow])
                 left join queue q on q.id = any(array[n.id])
                 left join ended e on e.id = any(array[n.id])
                 where ",
            wanted_notification!(),
            "
                 order by n.id desc
                 limit $2) as t on true
             ",
            $crate::postgres::reads::last_attempt!("t.id"),
            "
             order by t.id desc"
        )
    };
}

/// The newest rows of a table, or those of them that match a condition.
macro_rules! newest {
    ($table:literal $(where $condition:literal)?) => {
        concat!(
            "select id
             from ",
            $table,
            "
             where id < $1
             and id >= $3",
            $("
             and ", $condition,)?
            "
             order by id desc
             limit $4"
        )
    };
}

/// The newest rows of each range of an index, as `r`. The columns of the index stand before the id, each with
/// the value in this range.
macro_rules! of_ranges {
    ($ranges:literal, $table:literal $(where $condition:literal)?, $($column:literal = $value:literal),+) => {
        concat!(
            "select r.id
             from ",
            $ranges,
            "
             cross join lateral (
                 select id
                 from ",
            $table,
            "
                 where (",
            $($column, ", ",)+
            "id) < (",
            $($value, ", ",)+
            "$1)
                 and (",
            $($column, ", ",)+
            "id) >= (",
            $($value, ", ",)+
            "$3)",
            $("
                 and ", $condition,)?
            "
                 order by ",
            $($column, " desc, ",)+
            "id desc
                 limit $4) as r"
        )
    };
}

/// The newest of them all.
macro_rules! merged {
    ($($ranges:tt)+) => {
        notifications!(concat!(of_ranges!($($ranges)+), " order by r.id desc limit $4"))
    };
}

pub(super) const ALL: &str = notifications!(newest!("notification"));

/// `$5` are the flows.
pub(super) const FLOWS: &str = merged!("unnest($5::bigint[]) as u (flow)", "notification", "flow" = "u.flow");

/// `$5` are the codes of the states.
pub(super) const ENDS: &str = merged!(
    "unnest($5::bigint[]) as u (state)",
    "ended" where "state <> 2",
    "state" = "u.state::smallint"
);

/// `$5` are the codes of the states, `$6` is the tenant.
pub(super) const ENDS_OF: &str = merged!(
    "unnest($5::bigint[]) as u (state)",
    "ended" where "state <> 2",
    "tenant" = "$6",
    "state" = "u.state::smallint"
);

pub(super) const QUEUE: &str = notifications!(newest!("queue"));

pub(super) const RETRIES: &str = notifications!(newest!("queue" where "lane = 1"));

pub(super) const HELD: &str = merged!("node", "queue" where "node is not null", "node" = "node.id");

/// The retries of `c`. `$1` is the time and `$15` the id after which the list continues.
macro_rules! retries {
    ($keys:expr) => {
        concat!(
            "with c as materialized (",
            $keys,
            ")
             select (select count(*) from c), (select due from c order by due desc, id desc limit 1),
                 (select id from c order by due desc, id desc limit 1), t.*, l.*
             from (select) as always
             left join (
                 select c.due, n.id, ",
            $crate::postgres::rows::wide_columns!(),
            ", ",
            $crate::postgres::reads::place_columns!(),
            "
                 from c
                 join notification n on n.id = any(array[c.id])
                 join flow f on f.id = any(array[n.flow])
                 left join queue q on q.id = any(array[n.id])
                 left join ended e on false
                 -- On `n` the planner would take the two bounds for a range of its index, and walk that.
                 where c.id >= $3
                 and c.id < $16
                 and ",
            wanted_notification!(),
            "
                 order by c.due, n.id
                 limit $2) as t on true
             ",
            $crate::postgres::reads::last_attempt!("t.id"),
            "
             order by 4, t.id"
        )
    };
}

pub(super) const RETRY_QUEUE: &str = retries!(
    "select due, id
     from queue
     where lane = 1
     and (due, id) > ($1, $15)
     order by due, id
     limit $4"
);

/// `$5` are the flows.
pub(super) const RETRY_QUEUE_OF: &str = retries!(
    "select r.due, r.id
     from unnest($5::bigint[]) as u (flow)
     cross join lateral (
         select due, id
         from queue
         where lane = 1
         and (flow, due, id) > (u.flow, $1, $15)
         and flow <= u.flow
         order by flow, due, id
         limit $4) as r
     order by r.due, r.id
     limit $4"
);

/// The columns of a dead letter `n`, after its id.
macro_rules! letter_columns {
    () => {
        concat!(
            "n.id, ",
            $crate::postgres::rows::wide_columns!(),
            ", n.notification, n.reason, n.text, n.attempts, n.replies, n.status, n.created_at, n.resolved_at,
             n.resolved_by, n.failure, n.status_code, n.fingerprint, n.deleted_at, n.restored_at"
        )
    };
}

/// The dead letters of `c`.
macro_rules! letters {
    ($keys:expr) => {
        concat!(
            "with c as materialized (",
            $keys,
            ")
             select (select count(*) from c), (select id from c order by id limit 1), t.*
             from (select) as always
             left join (
                 select ",
            letter_columns!(),
            "
                 from c
                 join dead_letter n on n.id = any(array[c.id])
                 join flow f on f.id = any(array[n.flow])
                 where ",
            wanted!(),
            "
                 and ($11::text[] is null or n.reason = any($11))
                 and ($12::smallint[] is null or n.failure = any($12))
                 and ($13::integer[] is null or n.failure is not null and n.status_code = any($13))
                 and ($16::uuid is null or n.fingerprint = $16)
                 -- What has no fingerprint is in no group yet.
                 and (not $17::boolean or n.fingerprint is not null)
                 order by n.id desc
                 limit $2) as t on true
             order by t.id desc"
        )
    };
}

/// The newest dead letters of each range, and those that are deleted. `$5` are the codes of the statuses, `$15` is
/// whether deleted letters are included.
macro_rules! merged_letters {
    ($ranges:literal, $($columns:tt)+) => {
        merged_letters!(@where "deleted_at is null", $ranges, $($columns)+)
    };
    (@where $condition:literal, $ranges:literal, $($columns:tt)+) => {
        letters!(concat!(
            of_ranges!($ranges, "dead_letter" where $condition, $($columns)+),
            " union all (",
            newest!("dead_letter" where "$15 and deleted_at is not null"),
            ") order by id desc limit $4"
        ))
    };
}

pub(super) const LETTERS: &str =
    merged_letters!("unnest($5::bigint[]) as u (status)", "status" = "u.status::smallint");

/// `$6` is the tenant.
pub(super) const LETTERS_OF: &str =
    merged_letters!("unnest($5::bigint[]) as u (status)", "tenant" = "$6", "status" = "u.status::smallint");

/// `$16` is the fingerprint.
pub(super) const LETTERS_OF_CAUSE: &str = merged_letters!(
    @where "deleted_at is null and fingerprint is not null",
    "unnest($5::bigint[]) as u (status)",
    "fingerprint" = "$16",
    "status" = "u.status::smallint"
);

/// `$6` is the tenant, `$16` the fingerprint.
pub(super) const LETTERS_OF_CAUSE_OF: &str = merged_letters!(
    @where "deleted_at is null and fingerprint is not null",
    "unnest($5::bigint[]) as u (status)",
    "tenant" = "$6",
    "fingerprint" = "$16",
    "status" = "u.status::smallint"
);

/// `$14` are the flows.
pub(super) const LETTERS_OF_FLOWS: &str = merged_letters!(
    "unnest($5::bigint[]) as u (status) cross join unnest($14::bigint[]) as v (flow)",
    "flow" = "v.flow",
    "status" = "u.status::smallint"
);

pub(super) const LETTER: &str = concat!("select ", letter_columns!(), " from dead_letter n where n.id = $1");

/// The flows of the tenant `$1` over the channels `$3`.
pub(super) const FLOWS_OF_TENANT: &str = "
    select f.id
    from unnest($3::smallint[]) as u (channel)
    cross join lateral (
        select id
        from flow
        where tenant = $1
        and channel = u.channel
        order by destination
        limit $2) as f
    limit $2";

/// The flows of the tenant `$1` over the channels `$3` to the destinations `$4`.
pub(super) const FLOWS_OF_TENANT_TO: &str = "
    select f.id
    from unnest($3::smallint[]) as u (channel)
    cross join unnest($4::text[]) as v (destination)
    cross join lateral (
        select id
        from flow
        where tenant = $1
        and channel = u.channel
        and destination = v.destination) as f
    limit $2";

/// The flows of all tenants over the channels `$2` to the destinations `$3`.
pub(super) const FLOWS_TO: &str = "
    select id
    from flow
    where destination = any($3)
    and channel = any($2)
    limit $1";

pub(super) const AUDIT: &str = "
    select number, tenant, actor, action, target, at, key_id, address, asked, count
    from audit
    where number < $1
    order by number desc
    limit $2";

/// Of the tenant `$3`.
pub(super) const AUDIT_OF: &str = "
    select number, tenant, actor, action, target, at, key_id, address, asked, count
    from audit
    where (tenant, number) < ($3, $1)
    and tenant >= $3
    order by tenant desc, number desc
    limit $2";
