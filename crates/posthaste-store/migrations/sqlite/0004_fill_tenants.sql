-- Fills what step 0003 added, in the rows from before: in dead letters, and in what ended without being delivered.
update dead_letter
set tenant = (select tenant from flow where flow.id = dead_letter.flow),
    failure = attempts ->> '$[#-1][4]',
    status_code = attempts ->> '$[#-1][5]'
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
