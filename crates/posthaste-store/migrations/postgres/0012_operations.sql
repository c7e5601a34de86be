-- Retry operations: what each acts on, its batches and its items. The twin of the SQLite step. To take it back, drop the three
-- tables.
create table operation (
    id uuid not null primary key,
    -- Null if it acts on all tenants.
    tenant text collate "C",
    -- The node that works on it.
    runner bigint,
    finished boolean not null,
    -- What was asked for, and how far it is, as JSON.
    definition text not null,
    standing text not null
) with (fillfactor = 50);

create index operation_unfinished on operation (id) where not finished;
create index operation_tenant on operation (tenant, id) where tenant is not null;

-- Stages: 0 marking, 1 staging, 2 forwarding, 3 done. `held` counts the items that are marked or staged.
create table operation_batch (
    operation uuid not null,
    number integer not null,
    stage smallint not null,
    -- The staging whose items are forwarded.
    staging bigint,
    held integer not null,
    primary key (operation, number)
);

create index operation_batch_staging on operation_batch (operation, number) where stage = 1;

-- Stages: 0 marked, 1 staged, 2 forwarded, 3 left out, with the reason.
create table operation_item (
    operation uuid not null,
    notification uuid not null,
    dead_letter uuid,
    batch integer not null,
    stage smallint not null,
    tries integer not null,
    -- Of a staged item: by which staging, and how the notification stood.
    staging bigint,
    flow bigint,
    seen_state smallint,
    seen_generation integer,
    seen_attempt integer,
    -- True if the verdict on the canary depends on it.
    canary boolean not null,
    reason text,
    primary key (operation, notification)
);

-- One operation at a time holds a notification.
create unique index operation_item_held on operation_item (notification) where stage < 2;
create index operation_item_batch on operation_item (operation, batch, notification) where stage < 2;
create index operation_item_flow on operation_item (operation, flow, notification) where stage = 1;
create index operation_item_canary on operation_item (operation, notification) where canary;
