-- Retention: how far the pass over each kind of row came, and what it asks of a dead letter. The twin of the SQLite step. To take
-- it back, drop the table and the indexes, and reset the settings of autovacuum.
--
-- Whoever buries waits while the index of a large table of dead letters is made. docs/migrations.md says how it is made beforehand.
create table retention (
    kind text collate "C" not null primary key,
    -- The last row that was looked at; null between two passes. Of the counters: the hour before which there are none.
    after bytea,
    -- How many rows the pass has removed so far.
    removed bigint not null
) with (fillfactor = 20);

-- When it was last restored: its period counts from then.
alter table dead_letter add column restored_at bigint;

-- Whether a dead letter names a notification. Only what is buried pays for it.
create index if not exists dead_letter_notification on dead_letter (notification);
-- What was soft-deleted, oldest first.
create index if not exists dead_letter_deleted_at on dead_letter (deleted_at, id) where deleted_at is not null;

-- What retention removes is a small share of a large table, so vacuum runs by the number of dead rows: the next rows take
-- their place, and the tables level off.
alter table notification set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100000);
alter table ended set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100000);
alter table attempt set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100000);
alter table event set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100000);
alter table dead_letter set (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 10000);
alter table audit set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100000);
