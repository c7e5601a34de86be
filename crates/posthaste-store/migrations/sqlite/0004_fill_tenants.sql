-- Fills what step 0003 added, in the rows from before: in dead letters, and in what ended without being delivered.
update dead_letter
set tenant = (select tenant from flow where flow.id = dead_letter.flow),
    -- Attempts that are no JSON are damaged. They stop no other row.
    failure = case when json_valid(attempts) then attempts ->> '$[#-1][4]' end,
    status_code = case when json_valid(attempts) then attempts ->> '$[#-1][5]' end
where tenant is null;

update ended
set tenant = f.tenant,
    (failure, status_code) = (
        select a.failure, a.status_code
        from attempt a
        where a.notification = ended.id
        order by a.generation desc, a.number desc
        limit 1)
from notification n
join flow f on f.id = n.flow
where n.id = ended.id
and ended.state <> 2
and ended.tenant is null;
