-- Columns and a table for what is built next. Rows from before have null, which means "not known" unless said otherwise.

-- What the node understands; 0 for nodes from before.
alter table node add column level integer not null default 0;

-- Whether the notification has a policy of its own or a template: then only its content says how old it may get.
alter table queue add column own_policy integer;

-- Which provider took the attempt, the message id that it gave, and the start of its answer if the attempt failed.
alter table attempt add column provider text;
alter table attempt add column message_id text;
alter table attempt add column response_type text;
alter table attempt add column response text;

-- What the last attempt said, so that lists need no attempts. `tenant` is set unless it was delivered: the lists of failures
-- are led by it.
alter table ended add column failure integer;
alter table ended add column status_code integer;
alter table ended add column tenant text;

-- The failure type and the status of the last attempt, what groups it with others, and when it was soft-deleted. `replies`
-- has what the attempts of the snapshot say beside `attempts`, whose elements stay as the version before reads them.
alter table dead_letter add column failure integer;
alter table dead_letter add column status_code integer;
alter table dead_letter add column fingerprint blob;
alter table dead_letter add column deleted_at integer;
alter table dead_letter add column tenant text;
alter table dead_letter add column replies text;

alter table audit add column key_id text;
alter table audit add column address text;

-- What people define: templates, contacts, suppressions, subscriptions, views, notes. `value` is JSON that core checks.
-- `version` counts up over all rows, so that a node asks for what changed since.
create table record (
    kind integer not null,
    tenant text not null,
    name text not null,
    number integer not null,
    value text,
    version integer not null,
    changed integer not null,
    primary key (kind, tenant, name)
) strict, without rowid;

create index record_changes on record (kind, version);

create table record_version (
    version integer not null
) strict;

insert into record_version (version)
values (0);
