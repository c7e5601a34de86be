-- The version before knows no soft delete: what it restores or requeues keeps `deleted_at`, so it would stay hidden and be purged
-- later. Whatever changes the status of a dead letter shows it again. The twin of the SQLite step. To take it back, drop the
-- trigger and the function.
update dead_letter d
set deleted_at = null, restored_at = d.deleted_at
from ended e
where d.deleted_at is not null
and d.status = 0
and e.id = d.notification
and e.dead_letter = d.id
and e.state = 6;

create function dead_letter_shown() returns trigger language plpgsql as $$
begin
    new.deleted_at := null;
    -- When it was restored is not known here: after it was deleted.
    new.restored_at := old.deleted_at;
    return new;
end $$;

create trigger dead_letter_shown before update of status on dead_letter
for each row
when (new.status <> old.status and new.deleted_at = old.deleted_at)
execute function dead_letter_shown();
