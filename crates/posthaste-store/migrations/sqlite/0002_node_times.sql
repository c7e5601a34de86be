-- When a node joined and when it last said that it lives, for whoever looks at the cluster.
alter table node add column joined integer not null default 0;
alter table node add column beat integer not null default 0;
