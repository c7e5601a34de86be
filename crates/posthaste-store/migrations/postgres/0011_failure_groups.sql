-- Failure groups: kept counts of pending dead letters by cause, destination, template, channel and tenant. The twin of the SQLite
-- step. To take it back, drop the triggers of dead_letter whose names start with failure_group, both tables, the functions, the
-- types and the indexes.
--
-- A dead letter counts while it is pending, not deleted, and has a fingerprint. The dead letters from before have none, nor
-- have those that nodes from before bury: a job fills them in. Triggers keep the counts, so that they follow every change, also
-- one that a node from before makes.

-- At once, so that the step does not wait for a settlement that waits for it. Writers of dead letters wait while the indexes of a
-- large store are made.
lock table dead_letter in share row exclusive mode;

-- Whoever writes has rows of its own (`writer`), because transactions that meet on one row wait for each other's commit; a
-- reader adds them up. Only the sum of the writers means anything: a row alone may be negative.
create table failure_group (
    -- Fingerprint 0, destination 1, template 2, channel 3, tenant 4.
    kind smallint not null,
    -- Empty for the sum over all tenants.
    tenant text collate "C" not null,
    -- A hash of the kind and the key.
    id uuid not null,
    writer smallint not null,
    n bigint not null,
    -- These are of the dead letters that began to count here; the sample is the newest of them.
    first_seen bigint,
    sample uuid,
    reason text,
    failure smallint,
    status_code integer,
    -- The error text of the sample, the number of the channel, or the name; null for the group of all others.
    label text,
    -- The key of a group by fingerprint.
    fingerprint uuid,
    primary key (kind, tenant, id, writer)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- How many of them died in which hour since 1970.
create table failure_group_hour (
    hour bigint not null,
    kind smallint not null,
    tenant text collate "C" not null,
    id uuid not null,
    writer smallint not null,
    n bigint not null,
    primary key (hour, kind, tenant, id, writer)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 2000);

-- The dead letters of one cause, of all tenants and of one.
create index if not exists dead_letter_fingerprint on dead_letter (fingerprint, status, id)
where deleted_at is null and fingerprint is not null;

create index if not exists dead_letter_tenant_fingerprint on dead_letter (tenant, fingerprint, status, id)
where deleted_at is null and fingerprint is not null;

-- What the job has to fill in.
create index if not exists dead_letter_unfilled on dead_letter (id) where fingerprint is null;

-- `GroupId::of` in core. An empty key is that of the group of all others.
create function failure_group_id(kind smallint, key bytea) returns uuid language sql immutable as $$
    select encode(substring(sha256(set_byte('\x00'::bytea, 0, kind) || key) from 1 for 16), 'hex')::uuid
$$;

-- How many dead letters with the same values began or ceased to count.
create type failure_group_change as (
    flow bigint,
    template text,
    fingerprint uuid,
    hour bigint,
    n bigint,
    first_seen bigint,
    sample uuid
);

-- The same by group and hour.
create type failure_group_delta as (
    kind smallint,
    tenant text,
    id uuid,
    name text,
    fingerprint uuid,
    hour bigint,
    n bigint,
    first_seen bigint,
    sample uuid
);

-- Whether a kind has as many groups of the tenant as it may have. From half of them on, whoever asks holds a lock until its
-- commit, so that no two transactions decide differently about the same new group.
create function failure_group_is_full(of_kind smallint, whose text) returns boolean language plpgsql as $$
declare
    others constant uuid := failure_group_id(of_kind, '');
begin
    perform from failure_group g where g.kind = of_kind and g.tenant = whose offset 4999 limit 1;
    if not found then
        return false;
    end if;
    perform pg_advisory_xact_lock(hashtextextended(of_kind || ' ' || whose, 0));
    if (select sum(g.n) > 0 from failure_group g where g.kind = of_kind and g.tenant = whose and g.id = others) then
        return true;
    end if;
    return 10000 <= (
        select count(distinct g.id)
        from failure_group g
        where g.kind = of_kind
        and g.tenant = whose
        and g.id <> others);
end $$;

-- Adds the changes of a statement to the groups, in the order of the groups. What belongs to a group that is not known, and that
-- there is no room for, counts in the group of all others.
create function failure_group_write(changes failure_group_change[]) returns void language plpgsql as $$
declare
    own constant smallint := pg_backend_pid() % 64;
    deltas failure_group_delta[];
    scope record;
    is_full boolean;
    unknown uuid[];
begin
    if cardinality(changes) = 0 then
        return;
    end if;
    deltas := array(
        select row(k.kind, w.tenant, failure_group_id(k.kind, k.key), k.name, k.fingerprint, c.hour, c.n, c.first_seen,
            c.sample)::failure_group_delta
        from unnest(changes) as c
        join flow f on f.id = any(array[c.flow])
        cross join lateral (values
            (0::smallint, uuid_send(c.fingerprint), null, c.fingerprint),
            (1::smallint, convert_to(f.destination, 'UTF8'), f.destination, null),
            (2::smallint, convert_to(c.template, 'UTF8'), c.template, null),
            (3::smallint, convert_to(f.channel::text, 'UTF8'), f.channel::text, null),
            (4::smallint, convert_to(f.tenant, 'UTF8'), f.tenant, null)) as k (kind, key, name, fingerprint)
        cross join lateral (values (''), (f.tenant)) as w (tenant)
        where k.key is not null);
    for scope in
        select d.kind, d.tenant, array_agg(distinct d.id) as unknown, bool_or(d.sample is null) as has_ceased
        from unnest(deltas) as d
        where not exists (
            select
            from failure_group g
            where g.kind = d.kind
            and g.tenant = d.tenant
            and g.id = d.id)
        group by d.kind, d.tenant
        order by d.kind, d.tenant
    loop
        is_full := failure_group_is_full(scope.kind, scope.tenant);
        -- All deltas are written anew below, so that only happens where it must.
        continue when not is_full and not scope.has_ceased;
        -- Another transaction may have made some of them while this one waited for its lock.
        unknown := array(
            select u.id
            from unnest(scope.unknown) as u (id)
            where not exists (
                select
                from failure_group g
                where g.kind = scope.kind
                and g.tenant = scope.tenant
                and g.id = u.id));
        deltas := array(
            select case
                when d.kind = scope.kind and d.tenant = scope.tenant and d.id = any(unknown)
                    and (is_full or d.sample is null)
                then row(d.kind, d.tenant, failure_group_id(d.kind, ''), null, null, d.hour, d.n, d.first_seen,
                    d.sample)::failure_group_delta
                else d
            end
            from unnest(deltas) as d);
    end loop;
    insert into failure_group as g (kind, tenant, id, writer, n, first_seen, sample, reason, failure, status_code, label,
        fingerprint)
    select s.kind, s.tenant, s.id, own, s.n, s.first_seen, s.sample, l.reason, l.failure, l.status_code,
        case when s.fingerprint is null then s.name else l.text end, s.fingerprint
    from (
        select d.kind, d.tenant, d.id, sum(d.n) as n, min(d.first_seen) as first_seen, min(d.name) as name,
            (array_agg(d.sample order by d.sample desc nulls last))[1] as sample, (array_agg(d.fingerprint))[1] as fingerprint
        from unnest(deltas) as d
        group by d.kind, d.tenant, d.id) as s
    left join dead_letter l on l.id = any(array[s.sample])
    order by s.kind, s.tenant collate "C", s.id
    on conflict (kind, tenant, id, writer) do update
    set n = g.n + excluded.n,
        first_seen = least(g.first_seen, excluded.first_seen),
        sample = greatest(g.sample, excluded.sample),
        reason = case when excluded.sample > g.sample or g.sample is null then excluded.reason else g.reason end,
        failure = case when excluded.sample > g.sample or g.sample is null then excluded.failure else g.failure end,
        status_code =
            case when excluded.sample > g.sample or g.sample is null then excluded.status_code else g.status_code end,
        label = case when excluded.sample > g.sample or g.sample is null then excluded.label else g.label end;
    insert into failure_group_hour as h (hour, kind, tenant, id, writer, n)
    select d.hour, d.kind, d.tenant, d.id, own, sum(d.n)
    from unnest(deltas) as d
    group by d.hour, d.kind, d.tenant, d.id
    having sum(d.n) <> 0
    order by d.hour, d.kind, d.tenant collate "C", d.id
    on conflict (hour, kind, tenant, id, writer) do update
    set n = h.n + excluded.n;
end $$;

create function failure_group_insert() returns trigger language plpgsql as $$
begin
    perform failure_group_write(array(
        select row(flow, template, fingerprint, created_at / 3600000000, count(*), min(created_at),
            (array_agg(id order by id desc))[1])::failure_group_change
        from new_rows
        where status = 0
        and deleted_at is null
        and fingerprint is not null
        group by flow, template, fingerprint, created_at / 3600000000));
    return null;
end $$;

create trigger failure_group_insert after insert on dead_letter
referencing new table as new_rows
for each statement execute function failure_group_insert();

create function failure_group_delete() returns trigger language plpgsql as $$
begin
    perform failure_group_write(array(
        select row(flow, template, fingerprint, created_at / 3600000000, -count(*), null, null)::failure_group_change
        from old_rows
        where status = 0
        and deleted_at is null
        and fingerprint is not null
        group by flow, template, fingerprint, created_at / 3600000000));
    return null;
end $$;

create trigger failure_group_delete after delete on dead_letter
referencing old table as old_rows
for each statement execute function failure_group_delete();

create function failure_group_update() returns trigger language plpgsql as $$
begin
    perform failure_group_write(array(
        select row(x.flow, x.template, x.fingerprint, x.hour, sum(x.by), min(x.created_at) filter (where x.by > 0),
            (array_agg(x.id order by x.id desc) filter (where x.by > 0))[1])::failure_group_change
        from (
            select n.id, n.flow, n.template, coalesce(n.fingerprint, o.fingerprint) as fingerprint, n.created_at,
                n.created_at / 3600000000 as hour,
                case when n.status = 0 and n.deleted_at is null and n.fingerprint is not null then 1 else 0 end
                - case when o.status = 0 and o.deleted_at is null and o.fingerprint is not null then 1 else 0 end as by
            from old_rows o
            join new_rows n on n.id = o.id) as x
        where x.by <> 0
        group by x.flow, x.template, x.fingerprint, x.hour));
    return null;
end $$;

create trigger failure_group_update after update on dead_letter
referencing old table as old_rows new table as new_rows
for each statement execute function failure_group_update();

-- Adds up the rows of groups that have many writers, so that a reader has less to add.
create function failure_group_fold(most bigint) returns void language plpgsql as $$
declare
    many record;
begin
    for many in
        select kind, tenant, id
        from failure_group
        group by kind, tenant, id
        having count(*) > 4
        order by kind, tenant, id
        limit most
    loop
        perform
        from failure_group g
        where g.kind = many.kind
        and g.tenant = many.tenant
        and g.id = many.id
        order by g.writer
        for update;
        with gone as (
            delete from failure_group g
            where g.kind = many.kind
            and g.tenant = many.tenant
            and g.id = many.id
            returning *),
        newest as (
            select *
            from gone
            order by sample desc nulls last
            limit 1)
        insert into failure_group (kind, tenant, id, writer, n, first_seen, sample, reason, failure, status_code, label,
            fingerprint)
        select many.kind, many.tenant, many.id, 64, (select sum(n) from gone), (select min(first_seen) from gone), sample, reason,
            failure, status_code, label, fingerprint
        from newest;
    end loop;
end $$;
