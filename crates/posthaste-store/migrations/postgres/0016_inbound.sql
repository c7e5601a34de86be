-- What is taken of inbound limits. The twin of the SQLite step. To take it back, drop the table.
create table inbound (
    tenant text collate "C" not null,
    -- Empty for all notifications of the tenant.
    module text collate "C" not null,
    -- As JSON: see `posthaste_core::inbound::Taken`. Empty while the row is new.
    taken text not null,
    -- From when on the row says nothing any more. It changes once an hour, so that most updates touch no index.
    idle_from bigint not null,
    primary key (tenant, module)
) with (fillfactor = 50);

create index inbound_idle on inbound (idle_from, tenant, module);
