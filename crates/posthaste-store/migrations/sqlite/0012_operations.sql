-- Retry operations: what each acts on, its batches and its items. To take the step back, drop the three tables.
create table operation (
    id blob not null primary key,
    -- Null if it acts on all tenants.
    tenant text,
    -- The node that works on it.
    runner integer,
    finished integer not null,
    -- What was asked for, and how far it is, as JSON.
    definition text not null,
    standing text not null
) strict, without rowid;

create index operation_unfinished on operation (id) where finished = 0;
create index operation_tenant on operation (tenant, id) where tenant is not null;

-- Stages: 0 marking, 1 staging, 2 forwarding, 3 done. `held` counts the items that are marked or staged.
create table operation_batch (
    operation blob not null,
    number integer not null,
    stage integer not null,
    -- The staging whose items are forwarded.
    staging integer,
    held integer not null,
    primary key (operation, number)
) strict, without rowid;

create index operation_batch_staging on operation_batch (operation, number) where stage = 1;

-- Stages: 0 marked, 1 staged, 2 forwarded, 3 left out, with the reason.
create table operation_item (
    operation blob not null,
    notification blob not null,
    dead_letter blob,
    batch integer not null,
    stage integer not null,
    tries integer not null,
    -- Of a staged item: by which staging, and how the notification stood.
    staging integer,
    flow integer,
    seen_state integer,
    seen_generation integer,
    seen_attempt integer,
    -- 1 if the verdict on the canary depends on it.
    canary integer not null,
    reason text,
    primary key (operation, notification)
) strict, without rowid;

-- One operation at a time holds a notification.
create unique index operation_item_held on operation_item (notification) where stage < 2;
create index operation_item_batch on operation_item (operation, batch, notification) where stage < 2;
create index operation_item_flow on operation_item (operation, flow, notification) where stage = 1;
create index operation_item_canary on operation_item (operation, notification) where canary = 1;
