-- Figures by the hour of the busiest destinations, a row for each place that a node keeps. To take the step back, drop the
-- table.
create table destination_hour (
    -- The start of the hour.
    at integer not null,
    -- '' for the sum over all tenants.
    tenant text not null,
    node integer not null,
    -- The number of the place among the busiest. Another destination may take it over.
    place integer not null,
    channel integer not null,
    destination text not null,
    -- Grows with each use of the place: what has less was written late and is not kept.
    count integer not null,
    figures text not null,
    primary key (at, tenant, node, place)
) without rowid;

-- For reading the hours of one destination.
create index destination_hour_destination on destination_hour (tenant, destination, at);
