-- When a node joined and when it last said that it lives, for whoever looks at the cluster. The twin of the SQLite step.
alter table node add column joined bigint not null default 0;
alter table node add column beat bigint not null default 0;
