-- Jobs: when each runs, and what came of its runs. The twin of the SQLite step. To take it back, drop both tables.
create table job (
    name text collate "C" not null primary key,
    -- Null if it runs only when it is asked for.
    cron text,
    paused boolean not null,
    next_run bigint
);

create table job_run (
    number bigint generated always as identity primary key,
    job text collate "C" not null,
    started_at bigint not null,
    -- These are null while it is under way.
    finished_at bigint,
    outcome text,
    count bigint,
    error text,
    node bigint not null,
    node_name text not null,
    -- Null if it ran by itself.
    started_by text
);

create index job_run_job on job_run (job, number);
-- At most one run of a job is under way.
create unique index job_run_unfinished on job_run (job) where outcome is null;
