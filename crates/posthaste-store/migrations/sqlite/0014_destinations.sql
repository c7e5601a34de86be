-- What is known of destinations that are unhealthy, blocked, paused or limited, and their short histories. To take the step back,
-- drop the three tables.
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
