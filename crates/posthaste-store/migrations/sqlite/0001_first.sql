-- What is kept, split into what changes and what does not.
--
-- Times are microseconds since 1970 in UTC, ids are 16 bytes whose order is the order of time.

-- Who and what: a tenant's notifications over one channel to one destination. Rows are never changed or removed.
create table flow (
    id integer primary key,
    tenant text not null,
    channel integer not null,
    destination text not null,
    unique (tenant, channel, destination)
) strict;

-- What was accepted: written once, never updated. Tenant, channel and destination are those of the flow, the time of
-- acceptance is part of the id. Without a rowid it is one tree to write and one to look into instead of two; with rows
-- of 400 bytes on pages of 8 KiB both layouts took the same time to write. Rows of more than 2 KiB spill over.
create table notification (
    id blob not null primary key,
    flow integer not null,
    recipient text not null,
    priority integer not null,
    template text,
    subject text,
    event_key text,
    correlation_id text,
    not_before integer,
    expires integer,
    content text not null
) strict, without rowid;

-- What lives: one narrow row, which is the one outstanding try. The state follows from lane and node.
create table queue (
    id blob not null primary key,
    flow integer not null,
    lane integer not null,
    priority integer not null,
    due integer not null,
    expires integer,
    first_due integer not null,
    delay integer not null,
    -- Who holds it by which grant; null where nobody does.
    node integer,
    fence integer,
    attempt integer not null,
    base integer not null,
    generation integer not null,
    interruptions integer not null,
    cancel integer not null
) strict, without rowid;

-- What a claim walks: led by the flow, so that rows behind a quota of 0 are never looked at.
create index queue_claim on queue (flow, lane, priority, due, id) where node is null;
-- What becomes due in a stretch of time; answers `wakes` without a look at the rows.
create index queue_wake on queue (due, id, flow, lane, priority) where node is null;
create index queue_expiry on queue (expires, id) where node is null and expires is not null;
-- What nodes hold: small, because it is what is under way.
create index queue_held on queue (node, id) where node is not null;
-- The list of retries; first attempts do not pay for it.
create index queue_retry on queue (due, id) where lane = 1;

-- What ended: a notification is here or in the queue, never in both.
create table ended (
    id blob not null primary key,
    state integer not null,
    at integer not null,
    generation integer not null,
    base integer not null,
    attempt integer not null,
    reason text,
    text text,
    dead_letter blob
) strict, without rowid;

create table attempt (
    notification blob not null,
    generation integer not null,
    number integer not null,
    started_at integer not null,
    duration integer not null,
    -- The number of the failure type; null for a delivery.
    failure integer,
    status_code integer,
    error text,
    quick_tries text,
    primary key (notification, generation, number)
) strict, without rowid;

create table event (
    notification blob not null,
    number integer not null,
    at integer not null,
    word text not null,
    actor text,
    generation integer not null,
    attempt integer not null,
    primary key (notification, number)
) strict, without rowid;

-- A dead letter has its own snapshot of what was to be sent and of the attempts that were made.
create table dead_letter (
    id blob not null primary key,
    notification blob not null,
    flow integer not null,
    recipient text not null,
    priority integer not null,
    template text,
    subject text,
    event_key text,
    correlation_id text,
    not_before integer,
    expires integer,
    content text not null,
    reason text not null,
    text text not null,
    attempts text not null,
    status integer not null,
    created_at integer not null,
    resolved_at integer,
    resolved_by text
) strict, without rowid;

-- Numbers count up and are never given twice, also after the row is gone.
create table node (
    id integer primary key autoincrement,
    name text not null,
    expires integer not null,
    dead integer not null
) strict;

create table audit (
    number integer primary key,
    tenant text,
    actor text not null,
    action text not null,
    target text not null,
    at integer not null,
    -- How many changes were asked for, and how many of them were made.
    asked integer not null,
    count integer not null
) strict;

-- Kept sums; the empty tenant is the sum over all. Hours are those since 1970, 0 for what has no hour.
create table counter (
    tenant text not null,
    channel integer not null,
    kind integer not null,
    hour integer not null,
    n integer not null,
    primary key (tenant, channel, kind, hour)
) strict, without rowid;

create table setting (
    name text not null primary key,
    value text not null
) strict, without rowid;

create table setting_version (
    version integer not null
) strict;

insert into setting_version (version)
values (0);

-- Two tables that take turns, a day each, so that forgetting is the emptying of a table.
create table idempotency_even (
    tenant text not null,
    key text not null,
    hash blob not null,
    answer blob not null,
    at integer not null,
    primary key (tenant, key)
) strict, without rowid;

create table idempotency_odd (
    tenant text not null,
    key text not null,
    hash blob not null,
    answer blob not null,
    at integer not null,
    primary key (tenant, key)
) strict, without rowid;

-- Which day each of the two holds.
create table idempotency_day (
    turn integer primary key,
    day integer not null
) strict;
