-- Figures by the hour of the busiest destinations, a row for each place that a node keeps. The twin of the SQLite step. To
-- take it back, drop the table. Rows are rewritten for an hour: room on the page keeps that cheap.
create table destination_hour (
    -- The start of the hour.
    at bigint not null,
    -- '' for the sum over all tenants.
    tenant text collate "C" not null,
    node bigint not null,
    -- The number of the place among the busiest. Another destination may take it over.
    place integer not null,
    channel smallint not null,
    destination text collate "C" not null,
    -- Grows with each use of the place: what has less was written late and is not kept.
    count bigint not null,
    figures text not null,
    primary key (at, tenant, node, place)
) with (fillfactor = 70);

-- For reading the hours of one destination.
create index destination_hour_destination on destination_hour (tenant, destination, at);
