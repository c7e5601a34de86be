-- What is kept, split into what changes and what does not. The twin of the SQLite schema.
--
-- Times are microseconds since 1970 in UTC. Ids are uuid: 16 bytes without a length, in the order of time. Names are
-- compared byte by byte (collate "C"), so that their order is the same on every server and cheap.

-- Who and what: a tenant's notifications over one channel to one destination. Rows are never changed or removed.
create table flow (
    id bigint generated always as identity primary key,
    tenant text collate "C" not null,
    channel smallint not null,
    destination text collate "C" not null,
    unique (tenant, channel, destination)
);

-- What was accepted: written once, never updated. Tenant, channel and destination are those of the flow, the time of
-- acceptance is part of the id.
create table notification (
    id uuid not null primary key,
    flow bigint not null,
    priority smallint not null,
    not_before bigint,
    expires bigint,
    recipient text not null,
    template text,
    subject text,
    event_key text,
    correlation_id text,
    content text not null
);

-- What lives: one narrow row, which is the one outstanding try. The state follows from lane and node.
--
-- A claim or a retry moves a row between the partial indexes below, so it can never be a HOT update and free space in
-- pages would only make the table larger: the fill factor stays 100. A first try that succeeds is an insert and a delete.
-- Vacuum runs by the number of dead rows and not by their share, and without pauses: while many rows wait, a share of
-- them would be far too many dead ones in the way of every claim.
create table queue (
    id uuid not null primary key,
    flow bigint not null,
    due bigint not null,
    first_due bigint not null,
    delay bigint not null,
    expires bigint,
    -- Who holds it by which grant; null where nobody does.
    node bigint,
    fence bigint,
    attempt integer not null,
    base integer not null,
    generation integer not null,
    interruptions integer not null,
    lane smallint not null,
    priority smallint not null,
    cancel boolean not null
) with (
    autovacuum_vacuum_scale_factor = 0,
    autovacuum_vacuum_threshold = 10000,
    autovacuum_vacuum_insert_scale_factor = 0,
    autovacuum_vacuum_insert_threshold = 100000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_analyze_threshold = 10000,
    autovacuum_vacuum_cost_delay = 0
);

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
    id uuid not null primary key,
    at bigint not null,
    generation integer not null,
    base integer not null,
    attempt integer not null,
    state smallint not null,
    reason text,
    text text,
    dead_letter uuid
);

create table attempt (
    notification uuid not null,
    generation integer not null,
    number integer not null,
    started_at bigint not null,
    duration bigint not null,
    -- The number of the failure type; null for a delivery.
    failure smallint,
    status_code integer,
    error text,
    quick_tries text,
    primary key (notification, generation, number)
);

-- Numbers count up over all notifications. Whoever adds an event holds the row of its notification, so the numbers of one
-- notification are in the order of what happened to it.
create table event (
    notification uuid not null,
    number bigint generated always as identity,
    at bigint not null,
    word text not null,
    actor text,
    generation integer not null,
    attempt integer not null,
    primary key (notification, number)
);

-- A dead letter has its own snapshot of what was to be sent and of the attempts that were made.
create table dead_letter (
    id uuid not null primary key,
    notification uuid not null,
    flow bigint not null,
    priority smallint not null,
    not_before bigint,
    expires bigint,
    recipient text not null,
    template text,
    subject text,
    event_key text,
    correlation_id text,
    content text not null,
    reason text not null,
    text text not null,
    attempts text not null,
    -- The failure type of the last of these attempts; null if it delivered or there was none.
    failure smallint,
    status smallint not null,
    created_at bigint not null,
    resolved_at bigint,
    resolved_by text
);

-- Numbers count up and are never given twice. Heartbeats change only what is in no index, and have room beside them.
create table node (
    id bigint generated always as identity primary key,
    name text not null,
    expires bigint not null,
    dead boolean not null
) with (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);

create table audit (
    number bigint generated always as identity primary key,
    tenant text collate "C",
    actor text not null,
    action text not null,
    target text not null,
    at bigint not null,
    -- How many changes were asked for, and how many of them were made.
    asked bigint not null,
    count bigint not null
);

-- Kept sums; the empty tenant is the sum over all. Hours are those since 1970, 0 for what has no hour. Whoever writes has
-- rows of its own (`writer`), because transactions that meet on one row wait for each other's commit; a reader adds them
-- up. Only the sum of the writers means anything: a row alone may be negative.
create table counter (
    tenant text collate "C" not null,
    hour bigint not null,
    kind smallint not null,
    channel smallint not null,
    writer smallint not null,
    n bigint not null,
    primary key (tenant, hour, kind, channel, writer)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- Each process takes its writers from here, so that no two of them have the same while they are few.
create sequence counter_writer minvalue 0 start 0;

create table setting (
    name text collate "C" not null primary key,
    value text not null
);

create table setting_version (
    version bigint not null
) with (fillfactor = 20);

insert into setting_version (version)
values (0);

-- Two tables that take turns, a day each, so that forgetting is the emptying of a table.
create table idempotency_even (
    tenant text collate "C" not null,
    key text collate "C" not null,
    hash bytea not null,
    answer bytea not null,
    at bigint not null,
    primary key (tenant, key)
);

create table idempotency_odd (
    tenant text collate "C" not null,
    key text collate "C" not null,
    hash bytea not null,
    answer bytea not null,
    at bigint not null,
    primary key (tenant, key)
);

-- Which day each of the two holds.
create table idempotency_day (
    turn bigint primary key,
    day bigint not null
);

insert into idempotency_day (turn, day)
values (0, -1), (1, -1);
