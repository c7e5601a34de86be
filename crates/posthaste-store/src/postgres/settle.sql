-- Applies settlements, some of which are retries, where the lease is valid and no request to cancel was
-- missed. Returns the ids that were applied. One statement for both, so that every transaction locks the
-- counter rows in the same order.
--
-- $1 .. $20 are those of settle_ends.sql. $21 .. $33 are the retries, in the columns of $1 .. $13. $34: when
-- each is due. $35: the delay.
with gone as (
    delete from queue q
    using unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::boolean[], $5::integer[], $6::integer[], $7::bigint[],
        $8::bigint[], $9::smallint[], $10::integer[], $11::text[], $12::text[], $13::text[], $14::smallint[], $15::text[],
        $16::text[], $17::uuid[])
        as u (id, node, fence, cancel_seen, made_in, number, started_at, duration, failure, status_code, error,
            quick_tries, reply, state, reason, text, letter)
    where q.id = any(array[u.id])
    and q.node is not distinct from u.node
    and q.fence is not distinct from u.fence
    and (not q.cancel or u.cancel_seen)
    returning q.id, q.flow, q.lane, q.attempt, q.base, q.generation, u.made_in, u.number, u.started_at, u.duration,
        u.failure, u.status_code, u.error, u.quick_tries, u.reply, u.state, u.reason, u.text, u.letter),
-- `old` is the row before the update: the counters depend on its lane.
put_off as (
    update queue q
    set lane = 1, due = u.due, delay = u.delay, node = null, fence = null, attempt = q.attempt + 1, interruptions = 0,
        cancel = false
    from unnest($21::uuid[], $22::bigint[], $23::bigint[], $24::boolean[], $25::integer[], $26::integer[], $27::bigint[],
        $28::bigint[], $29::smallint[], $30::integer[], $31::text[], $32::text[], $33::text[], $34::bigint[],
        $35::bigint[])
        as u (id, node, fence, cancel_seen, made_in, number, started_at, duration, failure, status_code, error,
            quick_tries, reply, due, delay)
    join queue old on old.id = any(array[u.id])
    where q.id = any(array[u.id])
    and q.node is not distinct from u.node
    and q.fence is not distinct from u.fence
    and (not q.cancel or u.cancel_seen)
    returning q.id, q.flow, old.lane, u.made_in, u.number, u.started_at, u.duration, u.failure, u.status_code, u.error,
        u.quick_tries, u.reply),
made as (
    insert into attempt (notification, generation, number, started_at, duration, failure, status_code, error, quick_tries,
        provider, message_id, response_type, response)
    select id, made_in, number, started_at, duration, failure, status_code, error, quick_tries,
        reply::json ->> 0, reply::json ->> 1, reply::json ->> 2, reply::json ->> 3
    from (
        select id, made_in, number, started_at, duration, failure, status_code, error, quick_tries, reply
        from gone
        union all
        select id, made_in, number, started_at, duration, failure, status_code, error, quick_tries, reply
        from put_off) as u
    where number is not null),
-- Without a new attempt, the end has the values of the last stored one. Deliveries (2) have no tenant.
over as (
    insert into ended (id, state, at, generation, base, attempt, reason, text, dead_letter, failure, status_code, tenant)
    select id, state, $18::bigint, generation, base, coalesce(number, attempt - 1), reason, text, letter,
        case when number is null then (
            select a.failure
            from attempt a
            where a.notification = gone.id
            order by a.generation desc, a.number desc
            limit 1) else failure end,
        case when number is null then (
            select a.status_code
            from attempt a
            where a.notification = gone.id
            order by a.generation desc, a.number desc
            limit 1) else status_code end,
        case when state <> 2 then (select f.tenant from flow f where f.id = gone.flow) end
    from gone),
-- `n` rows of each flow have left that lane for that state, or for the retry lane if the state is null. The
-- kinds are those of `CounterKind`: out of the lane, into the retry lane, dead letters, delivered, ended.
counted as (
    insert into counter (tenant, hour, kind, channel, writer, n)
    select whose.tenant, what.hour, what.kind, f.channel, $20::smallint, sum(what.n)
    from (
        select flow, lane, state, count(*) as n
        from gone
        group by flow, lane, state
        union all
        select flow, lane, null, count(*)
        from put_off
        group by flow, lane) as c
    join flow f on f.id = any(array[c.flow])
    cross join lateral (values (''), (f.tenant)) as whose (tenant)
    cross join lateral (values
        (0::bigint, c.lane, -c.n),
        (0, 1::smallint, case when c.state is null then c.n else 0 end),
        (0, 2::smallint, case when c.state = 6 then c.n else 0 end),
        ($19::bigint, 3::smallint, case when c.state = 2 then c.n else 0 end),
        ($19::bigint, 4::smallint, case when c.state is null then 0 else c.n end)) as what (hour, kind, n)
    group by whose.tenant, what.hour, what.kind, f.channel
    having sum(what.n) <> 0
    order by whose.tenant, what.hour, what.kind, f.channel
    on conflict (tenant, hour, kind, channel, writer) do update
    set n = counter.n + excluded.n)
select id
from gone
union all
select id
from put_off
