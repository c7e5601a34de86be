-- Jobs: when each runs, and what came of its runs. To take the step back, drop both tables.
create table job (
    name text not null primary key,
    -- Null if it runs only when it is asked for.
    cron text,
    paused integer not null,
    next_run integer
) without rowid;

-- Numbers count up and are never given twice.
create table job_run (
    number integer primary key autoincrement,
    job text not null,
    started_at integer not null,
    -- These are null while it is under way.
    finished_at integer,
    outcome text,
    count integer,
    error text,
    node integer not null,
    node_name text not null,
    -- Null if it ran by itself.
    started_by text
);

create index job_run_job on job_run (job, number);
-- At most one run of a job is under way.
create unique index job_run_unfinished on job_run (job) where outcome is null;
