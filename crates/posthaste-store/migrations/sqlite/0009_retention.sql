-- Retention: how far the pass over each kind of row came, and what it asks of a dead letter. To take the step back, drop the
-- table and the indexes.
create table retention (
    kind text not null primary key,
    -- The last row that was looked at; null between two passes. Of the counters: the hour before which there are none.
    after blob,
    -- How many rows the pass has removed so far.
    removed integer not null
) strict, without rowid;

-- When it was last restored: its period counts from then.
alter table dead_letter add column restored_at integer;

-- Whether a dead letter names a notification. Only what is buried pays for it.
create index if not exists dead_letter_notification on dead_letter (notification);
-- What was soft-deleted, oldest first.
create index if not exists dead_letter_deleted_at on dead_letter (deleted_at, id) where deleted_at is not null;
