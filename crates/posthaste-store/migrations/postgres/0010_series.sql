-- Figures by the minute and by the hour, a row for each node that counted. The twin of the SQLite step. To take it
-- back, drop the table. Rows are rewritten for a minute or an hour: room on the page keeps that cheap.
create table series (
    -- '' for the sum over all tenants.
    tenant text collate "C" not null,
    -- 0 for minutes, 1 for hours.
    span smallint not null,
    -- The start of the period.
    at bigint not null,
    channel smallint not null,
    node bigint not null,
    -- Grows with the figures: what has less was written late and is not kept.
    weight bigint not null,
    figures text not null,
    primary key (tenant, span, at, channel, node)
) with (fillfactor = 70);

-- For removing what is old.
create index series_at on series (span, at);
