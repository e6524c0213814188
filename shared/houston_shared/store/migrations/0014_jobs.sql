-- Commands that outlived the call which started them, as the newest event about each says.
CREATE TABLE jobs (
    rollout    TEXT NOT NULL,
    host       TEXT NOT NULL,
    id         TEXT NOT NULL,         -- train@4096: session and log offset; main#812.77: a process
    step       INTEGER NOT NULL,      -- the step that left it running
    session    TEXT NOT NULL,
    command    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER,               -- NULL while it runs
    exit_code  INTEGER,               -- NULL while it runs, and where nobody could tell
    failed     INTEGER NOT NULL,      -- 1: its end was an error
    stopped_by TEXT NOT NULL,         -- agent; rollout: it ended with that; empty: by itself
    ending     TEXT NOT NULL,         -- how its session ended, where that ended it
    log_start  INTEGER,               -- of its output in the session's log; NULL: started apart
    log_end    INTEGER,
    output     TEXT NOT NULL,         -- the file that it prints to; empty for its session
    last_line  TEXT NOT NULL,         -- the last one that it printed, once it has ended
    seq        INTEGER NOT NULL,
    PRIMARY KEY (rollout, host, id)
) WITHOUT ROWID;
CREATE INDEX jobs_running ON jobs (rollout) WHERE ended_at IS NULL;
CREATE INDEX jobs_session ON jobs (rollout, host, session, started_at);
