-- When each API key was last used. A table of its own: keys are settings, and each change of a setting makes every node read
-- all of them. Each node writes at most once a minute. To take the step back, drop the table.
create table key_use (
    key blob not null primary key,
    at integer not null
) strict, without rowid;
