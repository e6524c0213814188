-- What a critic would have a person say to a running rollout, and what became of it.
CREATE TABLE critic_drafts (
    id       TEXT PRIMARY KEY,
    rollout  TEXT NOT NULL,
    step     INTEGER NOT NULL,           -- the last closed step that the critic read
    critic   TEXT NOT NULL,              -- the critic's policy, else its engine
    state    TEXT NOT NULL CHECK (state IN ('open','accepted','edited','rejected')),
    by       TEXT NOT NULL DEFAULT '',   -- who decided; empty while it is open
    guidance TEXT NOT NULL DEFAULT '',   -- what was said; empty where nothing was
    seq      INTEGER NOT NULL,           -- the event with the text
    at       INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX critic_drafts_rollout ON critic_drafts (rollout, seq);
CREATE INDEX critic_drafts_guidance ON critic_drafts (guidance) WHERE guidance <> '';
