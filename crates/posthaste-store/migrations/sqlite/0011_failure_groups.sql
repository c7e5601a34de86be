-- Failure groups: kept counts of pending dead letters by cause, destination, template, channel and tenant. To take the step
-- back, drop both tables and the indexes of dead letters.
--
-- A dead letter counts while it is pending, not deleted, and has a fingerprint. The dead letters from before have none: a job
-- fills them in. Nothing is written while the indexes of a large store are made.
create table failure_group (
    -- Fingerprint 0, destination 1, template 2, channel 3, tenant 4.
    kind integer not null,
    -- Empty for the sum over all tenants.
    tenant text not null,
    -- A hash of the kind and the key.
    id blob not null,
    n integer not null,
    -- These are of the dead letters that began to count here; the sample is the newest of them.
    first_seen integer,
    sample blob,
    reason text,
    failure integer,
    status_code integer,
    -- The error text of the sample, the number of the channel, or the name; null for the group of all others.
    label text,
    -- The key of a group by fingerprint.
    fingerprint blob,
    primary key (kind, tenant, id)
) strict, without rowid;

create index failure_group_count on failure_group (kind, tenant, n, id) where n > 0;
-- What can be removed.
create index failure_group_empty on failure_group (sample) where n = 0;

-- How many of them died in which hour since 1970.
create table failure_group_hour (
    hour integer not null,
    kind integer not null,
    tenant text not null,
    id blob not null,
    n integer not null,
    primary key (hour, kind, tenant, id)
) strict, without rowid;

-- The dead letters of one cause, of all tenants and of one.
create index dead_letter_fingerprint on dead_letter (fingerprint, status, id)
where deleted_at is null and fingerprint is not null;

create index dead_letter_tenant_fingerprint on dead_letter (tenant, fingerprint, status, id)
where deleted_at is null and fingerprint is not null;

-- What the job has to fill in.
create index dead_letter_unfilled on dead_letter (id) where fingerprint is null;
