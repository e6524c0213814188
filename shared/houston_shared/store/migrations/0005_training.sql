-- What is trained and what comes of it. The tables of the first schema never held a row.
DROP TABLE policies;
DROP TABLE training_runs;

CREATE TABLE policies (
    name       TEXT PRIMARY KEY,      -- policy@7
    family     TEXT NOT NULL,         -- policy
    number     INTEGER NOT NULL,      -- 7; 1 is the base model
    kind       TEXT NOT NULL CHECK (kind IN ('base','lora','full')),
    base       TEXT NOT NULL,         -- folder of the model that an adapter fits; its own otherwise
    base_hash  TEXT NOT NULL,         -- SHA-256 of that model's files
    hash       TEXT NOT NULL,         -- SHA-256 of its own files
    folder     TEXT NOT NULL,         -- in the home's policies/; empty for a base
    parent     TEXT NOT NULL,         -- the policy that it was trained from; empty for a base
    run        TEXT NOT NULL,         -- training run; empty where it was imported
    manifest   TEXT NOT NULL,         -- SHA-256 of the manifest of its data
    seq        INTEGER NOT NULL,      -- the event with recipe, metrics and the rest
    created_at INTEGER NOT NULL,
    UNIQUE (family, number)
) WITHOUT ROWID;

CREATE TABLE training_runs (
    id         TEXT PRIMARY KEY,      -- also its folder in the home's training/
    kind       TEXT NOT NULL CHECK (kind IN ('sft','dapo','echo','prm')),
    state      TEXT NOT NULL CHECK (state IN ('queued','running','finished','failed','cancelled')),
    reason     TEXT NOT NULL DEFAULT '',
    alone      INTEGER NOT NULL,      -- whether somebody runs it beside the daemon
    cancelling TEXT NOT NULL DEFAULT '',
    policy     TEXT NOT NULL DEFAULT '',   -- what came of it
    starts     INTEGER NOT NULL DEFAULT 0, -- processes that it took
    by         TEXT NOT NULL,
    seq        INTEGER NOT NULL,      -- the event with what was asked
    queued_at  INTEGER NOT NULL,
    started_at INTEGER,               -- when the first of its processes began
    ended_at   INTEGER,
    last_seq   INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX training_runs_state ON training_runs (state);

-- What new rollouts of an engine sample with: the newest row that is active.
CREATE TABLE activations (
    seq      INTEGER PRIMARY KEY,     -- the event that asked for it
    engine   TEXT NOT NULL,
    policy   TEXT NOT NULL,           -- empty for the engine's own model
    rollback INTEGER NOT NULL,        -- whether it takes the newest one back
    state    TEXT NOT NULL CHECK (state IN ('asked','active','failed')),
    reason   TEXT NOT NULL DEFAULT '',
    by       TEXT NOT NULL,
    at       INTEGER NOT NULL,
    ended_at INTEGER                  -- when it became active, or failed
);
CREATE INDEX activations_engine ON activations (engine, seq);
