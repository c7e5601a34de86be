-- The version before knows no soft delete: what it restores or requeues keeps `deleted_at`, so it would stay hidden and be purged
-- later. Whatever changes the status of a dead letter shows it again. To take the step back, drop the trigger.

-- Its failure groups are counted by the job that fills in fingerprints.
update dead_letter
set deleted_at = null, restored_at = deleted_at, fingerprint = null
where deleted_at is not null
and status = 0
and exists (
    select 1
    from ended
    where ended.id = dead_letter.notification
    and ended.dead_letter = dead_letter.id
    and ended.state = 6);

create trigger dead_letter_shown after update of status on dead_letter
when new.status <> old.status
and new.deleted_at = old.deleted_at
begin
    -- When it was restored is not known here: after it was deleted.
    update dead_letter
    set deleted_at = null, restored_at = old.deleted_at, fingerprint = null
    where id = new.id;
end;
