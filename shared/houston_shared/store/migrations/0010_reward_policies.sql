-- A policy may be a process reward model: it scores decisions, and no engine samples with it.
CREATE TABLE policies_10 (
    name       TEXT PRIMARY KEY,      -- policy@7
    family     TEXT NOT NULL,         -- policy
    number     INTEGER NOT NULL,      -- 7; 1 is the base model
    kind       TEXT NOT NULL CHECK (kind IN ('base','lora','full','reward')),
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
INSERT INTO policies_10 SELECT * FROM policies;
DROP TABLE policies;
ALTER TABLE policies_10 RENAME TO policies;
