-- Indexes of the lists. Each is led by what a list is asked for, so that a list never walks the rows of others. To take the
-- step back, drop them.
--
-- Writers wait while the indexes of a large store are made. docs/migrations.md says which of them can be made beforehand.

-- All tables at once, before anything is built: locked one after the other, they could close a circle with a settlement that waits
-- for one of them.
lock table notification, flow, queue, ended, dead_letter, audit in share mode;

-- The notifications of a tenant or of one destination: a merge over its flows.
create index if not exists notification_flow on notification (flow, id);
create index if not exists flow_destination on flow (destination);
-- What ended without being delivered; deliveries are in neither.
create index if not exists ended_state on ended (state, id) where state <> 2;
create index if not exists ended_tenant on ended (tenant, state, id) where state <> 2;
-- Retries by id, and by flow and time; first attempts are in neither.
create index if not exists queue_retry_id on queue (id) where lane = 1;
create index if not exists queue_retry_flow on queue (flow, due, id) where lane = 1;
create index if not exists dead_letter_status on dead_letter (status, id) where deleted_at is null;
create index if not exists dead_letter_tenant on dead_letter (tenant, status, id) where deleted_at is null;
create index if not exists dead_letter_flow on dead_letter (flow, status, id) where deleted_at is null;
create index if not exists dead_letter_deleted on dead_letter (id) where deleted_at is not null;
create index if not exists audit_tenant on audit (tenant, number);
