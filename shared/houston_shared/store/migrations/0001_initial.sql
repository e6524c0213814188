-- The journal holds every byte once; every other table holds keys and small columns and points at
-- a journal sequence. Times are UTC microseconds. Bodies are msgpack of records.py.

CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

CREATE TABLE events (
    seq       INTEGER PRIMARY KEY,
    rollout   TEXT NOT NULL,          -- '' for events of the daemon itself
    step      INTEGER NOT NULL,       -- 0 for events of the whole rollout
    attempt   INTEGER NOT NULL,       -- 1 unless the step was purified
    part      TEXT,                   -- sample, summary.N, intent.I, call.I, observation, fork, head; NULL: not a worker's
    kind      TEXT NOT NULL,          -- type of the body: head, sample, intent, result, observation, delivery, fork, guidance, ...
    at        INTEGER NOT NULL,
    body      BLOB,                   -- NULL when in blobs/ or erased
    blob      TEXT,                   -- SHA-256 (hex) of the file in blobs/, NULL when the body is here
    erased    INTEGER NOT NULL DEFAULT 0,
    body_hash BLOB NOT NULL,          -- SHA-256 of the body
    chain     BLOB NOT NULL           -- SHA-256(previous chain, header, body_hash)
);
CREATE UNIQUE INDEX events_key ON events (rollout, step, attempt, part) WHERE part IS NOT NULL;
CREATE INDEX events_rollout ON events (rollout, seq);

CREATE TABLE tasks (
    name       TEXT PRIMARY KEY,
    seq        INTEGER NOT NULL,      -- newest definition
    first_seen INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE rollouts (
    id           TEXT PRIMARY KEY,
    task         TEXT NOT NULL REFERENCES tasks (name),
    state        TEXT NOT NULL CHECK (state IN ('queued','running','paused','finished','failed','cancelled')),
    paused_by    TEXT NOT NULL DEFAULT '',
    reason       TEXT NOT NULL DEFAULT '',
    cancelling   TEXT NOT NULL DEFAULT '',     -- who asked to cancel while a worker runs it
    engine       TEXT NOT NULL,
    policy       TEXT NOT NULL DEFAULT '',
    group_id     TEXT NOT NULL DEFAULT '',
    parent       TEXT NOT NULL DEFAULT '',
    parent_step  INTEGER,
    lease        INTEGER NOT NULL DEFAULT 0,
    sandbox      TEXT NOT NULL,
    spec_seq     INTEGER NOT NULL,
    head_seq     INTEGER,
    fork_seq     INTEGER,             -- newest fork, NULL before the first
    forks        INTEGER NOT NULL DEFAULT 0,
    first_step   INTEGER NOT NULL DEFAULT 1,   -- first step of the current context
    steps        INTEGER NOT NULL DEFAULT 0,   -- closed steps
    active_us    INTEGER NOT NULL DEFAULT 0,
    evaluations  INTEGER NOT NULL DEFAULT 0,
    best_score   REAL,
    last_score   REAL,
    errors       INTEGER NOT NULL DEFAULT 0,   -- steps with an error observation
    activity     TEXT NOT NULL DEFAULT '',
    created_at   INTEGER NOT NULL,
    updated_at   INTEGER NOT NULL,
    last_seq     INTEGER NOT NULL,
    request      TEXT NOT NULL DEFAULT ''      -- idempotency key of the start
) WITHOUT ROWID;
CREATE INDEX rollouts_state ON rollouts (state);

CREATE TABLE steps (
    rollout         TEXT NOT NULL,
    step            INTEGER NOT NULL,
    attempt         INTEGER NOT NULL,
    current         INTEGER NOT NULL DEFAULT 1, -- 0 for attempts that purification replaced
    sample_seq      INTEGER NOT NULL,
    observation_seq INTEGER,                    -- NULL while open
    last_seq        INTEGER NOT NULL,
    policy          TEXT NOT NULL DEFAULT '',
    drift           TEXT NOT NULL,
    tools           TEXT NOT NULL DEFAULT '',   -- names of the calls, comma separated
    calls           INTEGER NOT NULL DEFAULT 0,
    errors          INTEGER NOT NULL DEFAULT 0, -- calls whose result was an error
    guided          INTEGER NOT NULL DEFAULT 0, -- guidance joined to its observation
    attention       TEXT NOT NULL DEFAULT '',   -- comma separated
    score           REAL,                       -- score of an evaluation in this step
    snapshot        TEXT NOT NULL DEFAULT '',
    started_at      INTEGER NOT NULL,
    closed_at       INTEGER,
    active_us       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (rollout, step, attempt)
) WITHOUT ROWID;

CREATE TABLE samples (
    seq           INTEGER PRIMARY KEY REFERENCES events (seq),
    rollout       TEXT NOT NULL,
    step          INTEGER NOT NULL,
    attempt       INTEGER NOT NULL,
    role          TEXT NOT NULL CHECK (role IN
        ('policy','summary','judge','planner','executor','verifier','critic','lookahead')),
    parent_seq    INTEGER,
    kept          INTEGER NOT NULL,
    new_ids       INTEGER,              -- count; NULL without token ids
    sampled_ids   INTEGER,              -- count; NULL without token ids
    prompt_tokens INTEGER,
    cached_tokens INTEGER,
    finish_reason TEXT NOT NULL,
    logprob_kind  TEXT NOT NULL,
    engine        TEXT NOT NULL,
    policy        TEXT NOT NULL DEFAULT '',
    drift         TEXT NOT NULL,
    guided        INTEGER NOT NULL DEFAULT 0, -- schema-guided decoding
    seconds       REAL NOT NULL DEFAULT 0
);
CREATE INDEX samples_rollout ON samples (rollout, step);

CREATE TABLE forks (
    rollout    TEXT NOT NULL,
    number     INTEGER NOT NULL,        -- 1, 2, ... within the rollout
    step       INTEGER NOT NULL,        -- the step that the new context comes before
    k          INTEGER NOT NULL,
    first_kept_step INTEGER NOT NULL,
    mechanical INTEGER NOT NULL,
    sample_seq INTEGER,
    seq        INTEGER NOT NULL,
    PRIMARY KEY (rollout, number)
) WITHOUT ROWID;

CREATE TABLE guidance (
    id             TEXT PRIMARY KEY,
    number         INTEGER NOT NULL UNIQUE,  -- order of queueing
    rollout        TEXT NOT NULL,
    author         TEXT NOT NULL,
    uid            INTEGER,
    verified       INTEGER NOT NULL,
    mode           TEXT NOT NULL CHECK (mode IN ('next','wake','interrupt')),
    state          TEXT NOT NULL CHECK (state IN ('queued','delivered','withdrawn')),
    revision       INTEGER NOT NULL DEFAULT 1,
    text_seq       INTEGER NOT NULL,         -- event with the newest text
    queued_at      INTEGER NOT NULL,
    delivered_step INTEGER,
    delivered_seq  INTEGER,
    delivered_at   INTEGER
) WITHOUT ROWID;
CREATE INDEX guidance_rollout ON guidance (rollout, state, number);

CREATE TABLE verdicts (
    rollout TEXT NOT NULL,
    step    INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    source  TEXT NOT NULL CHECK (source IN ('rule','judge','human')),
    keep    INTEGER NOT NULL,
    author  TEXT NOT NULL DEFAULT '',
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (rollout, step, attempt, source)
) WITHOUT ROWID;

CREATE TABLE evaluations (
    rollout TEXT NOT NULL,
    number  INTEGER NOT NULL,
    step    INTEGER NOT NULL,
    score   REAL,                       -- NULL when the evaluator failed or the format was wrong
    state   TEXT NOT NULL,              -- scored, format, failed
    seconds REAL NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (rollout, number)
) WITHOUT ROWID;

CREATE TABLE terminals (
    rollout  TEXT NOT NULL,
    host     TEXT NOT NULL,
    name     TEXT NOT NULL,
    end      INTEGER NOT NULL,          -- bytes of its log at the last step that touched it
    last_seq INTEGER NOT NULL,
    PRIMARY KEY (rollout, host, name)
) WITHOUT ROWID;

CREATE TABLE terminal_spans (
    rollout  TEXT NOT NULL,
    step     INTEGER NOT NULL,
    attempt  INTEGER NOT NULL,
    host     TEXT NOT NULL,
    terminal TEXT NOT NULL,
    start    INTEGER NOT NULL,
    end      INTEGER NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (rollout, step, attempt, host, terminal)
) WITHOUT ROWID;

CREATE TABLE file_changes (
    rollout TEXT NOT NULL,
    step    INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    path    TEXT NOT NULL,
    kind    TEXT NOT NULL CHECK (kind IN ('added','changed','removed')),
    added   INTEGER NOT NULL,
    removed INTEGER NOT NULL,
    seq     INTEGER NOT NULL,           -- the observation that holds the diff
    PRIMARY KEY (rollout, step, attempt, path)
) WITHOUT ROWID;
CREATE INDEX file_changes_path ON file_changes (rollout, path, step);

CREATE TABLE searches (
    rollout TEXT NOT NULL,
    step    INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    idx     INTEGER NOT NULL,           -- index of the call
    kind    TEXT NOT NULL,              -- web_search, web_browse, search_dir, search_file, find_file
    query   TEXT NOT NULL,              -- first 200 characters
    results INTEGER NOT NULL,
    seq     INTEGER NOT NULL,
    PRIMARY KEY (rollout, step, attempt, idx)
) WITHOUT ROWID;

CREATE TABLE policies (
    name       TEXT PRIMARY KEY,        -- policy@7
    base       TEXT NOT NULL,
    adapter    TEXT NOT NULL DEFAULT '',
    parent     TEXT NOT NULL DEFAULT '',
    active     INTEGER NOT NULL DEFAULT 0,
    seq        INTEGER NOT NULL,
    created_at INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE training_runs (
    id         TEXT PRIMARY KEY,
    kind       TEXT NOT NULL CHECK (kind IN ('sft','dapo','echo','prm')),
    state      TEXT NOT NULL,
    policy     TEXT NOT NULL DEFAULT '',
    seq        INTEGER NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER
) WITHOUT ROWID;

CREATE TABLE annotators (
    name      TEXT PRIMARY KEY,
    uid       INTEGER,
    verified  INTEGER NOT NULL,
    rollout   TEXT NOT NULL DEFAULT '', -- what they look at
    step      INTEGER NOT NULL DEFAULT 0,
    last_seen INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE bookmarks (
    rollout TEXT NOT NULL,
    step    INTEGER NOT NULL,
    author  TEXT NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (rollout, step, author)
) WITHOUT ROWID;

CREATE TABLE notes (
    seq     INTEGER PRIMARY KEY,
    rollout TEXT NOT NULL,
    step    INTEGER NOT NULL,
    author  TEXT NOT NULL,
    at      INTEGER NOT NULL
);
