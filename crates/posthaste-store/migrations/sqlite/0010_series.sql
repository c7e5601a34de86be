-- Figures by the minute and by the hour, a row for each node that counted. To take the step back, drop the table.
create table series (
    -- '' for the sum over all tenants.
    tenant text not null,
    -- 0 for minutes, 1 for hours.
    span integer not null,
    -- The start of the period.
    at integer not null,
    channel integer not null,
    node integer not null,
    -- Grows with the figures: what has less was written late and is not kept.
    weight integer not null,
    figures text not null,
    primary key (tenant, span, at, channel, node)
) without rowid;

-- For removing what is old.
create index series_at on series (span, at);
