-- What is known of destinations that are unhealthy, blocked, paused or limited, and their short histories. To take the step back,
-- drop the three tables, the index `queue_own_age` and the column `own_age`.
create table destination (
    -- Empty for those of no tenant.
    tenant text not null,
    kind integer not null,
    name text not null,
    -- A hash of the three columns before.
    id blob not null,
    -- As JSON; null if it was removed.
    value text,
    version integer not null,
    changed integer not null,
    primary key (tenant, kind, name)
) strict, without rowid;

create index destination_id on destination (id);
create index destination_changes on destination (version);
create index destination_removed on destination (changed, version) where value is null;

-- The version of the last change.
create table destination_version (
    version integer not null
) strict;

insert into destination_version (version)
values (0);

-- Numbers count up in each destination.
create table destination_event (
    destination blob not null,
    number integer not null,
    at integer not null,
    event integer not null,
    actor text,
    until integer,
    primary key (destination, number)
) strict, without rowid;

create index destination_event_at on destination_event (at);

-- Whether the message says itself how old it may become; null for rows of versions before. What is parked and does not say so
-- is looked at only after the shortest age that any policy allows.
alter table queue add column own_age integer;

create index queue_own_age on queue (due, id) where node is null and own_age is not 0;
