-- What is known of destinations that are unhealthy, blocked, paused or limited, and their short histories. The twin of the SQLite
-- step. To take it back, drop the three tables, the index `queue_own_age` and the column `own_age`.
create table destination (
    -- Empty for those of no tenant.
    tenant text collate "C" not null,
    kind smallint not null,
    name text collate "C" not null,
    -- A hash of the three columns before.
    id uuid not null,
    -- As JSON; null if it was removed.
    value text,
    version bigint not null,
    changed bigint not null,
    primary key (tenant, kind, name)
) with (fillfactor = 50);

create index destination_id on destination (id);
create index destination_changes on destination (version);
create index destination_removed on destination (changed, version) where value is null;

-- The version of the last change. Each change locks it, so that versions become visible in order.
create table destination_version (
    version bigint not null
) with (fillfactor = 20);

insert into destination_version (version)
values (0);

-- Numbers count up in each destination.
create table destination_event (
    destination uuid not null,
    number bigint not null,
    at bigint not null,
    event smallint not null,
    actor text,
    until bigint,
    primary key (destination, number)
);

create index destination_event_at on destination_event (at);

-- Whether the message says itself how old it may become; null for rows of versions before. What is parked and does not say so
-- is looked at only after the shortest age that any policy allows.
alter table queue add column own_age boolean;

create index queue_own_age on queue (due, id) where node is null and own_age is not false;
