-- Fills what step 0003 added, in the rows from before: in dead letters, and in what ended without being delivered. A step of
-- its own, because the locks of step 0003 keep every node waiting and these do not. The twin of the SQLite step.
--
-- First what ended, then the dead letters, as an act locks them: else the two could wait for each other.

-- Attempts that are no JSON are damaged. They stop no other row.
create function pg_temp.last_status_code(attempts text) returns integer language plpgsql as $$
begin
    return (attempts::json -> -1 ->> 5)::integer;
exception when others then
    return null;
end $$;

update ended e
set tenant = f.tenant, failure = last.failure, status_code = last.status_code
from ended o
join notification n on n.id = o.id
join flow f on f.id = n.flow
left join lateral (
    select a.failure, a.status_code
    from attempt a
    where a.notification = o.id
    order by a.generation desc, a.number desc
    limit 1) as last on true
where e.id = o.id
and o.state <> 2
and o.tenant is null;

update dead_letter d
set tenant = f.tenant, status_code = pg_temp.last_status_code(d.attempts)
from flow f
where f.id = d.flow
and d.tenant is null;
