-- What is taken of inbound limits. To take the step back, drop the table.
create table inbound (
    tenant text not null,
    -- Empty for all notifications of the tenant.
    module text not null,
    -- As JSON: see `posthaste_core::inbound::Taken`.
    taken text not null,
    -- From when on the row says nothing any more.
    idle_from integer not null,
    primary key (tenant, module)
) strict;

create index inbound_idle on inbound (idle_from, tenant, module);
