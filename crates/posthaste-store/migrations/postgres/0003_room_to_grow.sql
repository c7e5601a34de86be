-- Columns and a table for what is built next, the twin of the SQLite step. Rows from before have null, which means "not
-- known" unless said otherwise.
--
-- The tables are in the order in which nodes lock them, so that the step and a busy node do not wait for each other.

-- What the node understands; 0 for nodes from before.
alter table node add column level integer not null default 0;

-- Whether the notification has a policy of its own or a template: then only its content says how old it may get.
alter table queue add column own_policy boolean;

-- Which provider took the attempt, the message id that it gave, and the start of its answer if the attempt failed.
alter table attempt add column provider text;
alter table attempt add column message_id text;
alter table attempt add column response_type text;
alter table attempt add column response text;

-- What the last attempt said, so that lists need no attempts. `tenant` is set unless it was delivered: the lists of failures
-- are led by it.
alter table ended add column failure smallint;
alter table ended add column status_code integer;
alter table ended add column tenant text collate "C";

-- The status of the last attempt, what groups it with others, and when it was soft-deleted. `replies` has what the attempts of
-- the snapshot say beside `attempts`, whose elements nodes from before read and which therefore stay as they are.
alter table dead_letter add column status_code integer;
alter table dead_letter add column fingerprint uuid;
alter table dead_letter add column deleted_at bigint;
alter table dead_letter add column tenant text collate "C";
alter table dead_letter add column replies text;

alter table audit add column key_id text;
alter table audit add column address text;

-- Nodes from before insert without a tenant, and lists led by it would miss those rows. A later step drops these two triggers
-- and their functions, when no such node runs any more.
create function ended_before() returns trigger language plpgsql as $$
begin
    new.tenant := (select f.tenant from notification n join flow f on f.id = n.flow where n.id = new.id);
    return new;
end $$;

create trigger ended_before before insert on ended
for each row when (new.tenant is null and new.state <> 2)
execute function ended_before();

create function dead_letter_before() returns trigger language plpgsql as $$
begin
    new.tenant := (select tenant from flow where id = new.flow);
    new.status_code := (new.attempts::json -> -1 ->> 5)::integer;
    return new;
end $$;

create trigger dead_letter_before before insert on dead_letter
for each row when (new.tenant is null)
execute function dead_letter_before();

-- What people define: templates, contacts, suppressions, subscriptions, views, notes. `value` is JSON that core checks.
-- `version` counts up over all rows, so that a node asks for what changed since.
create table record (
    kind smallint not null,
    tenant text collate "C" not null,
    name text collate "C" not null,
    number bigint not null,
    value text,
    version bigint not null,
    changed bigint not null,
    primary key (kind, tenant, name)
);

create index record_changes on record (kind, version);

create table record_version (
    version bigint not null
) with (fillfactor = 20);

insert into record_version (version)
values (0);
