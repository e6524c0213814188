-- Queued guidance is delivered in the order of `place`, which people may change; `number` stays the
-- order in which it was queued.
ALTER TABLE guidance ADD COLUMN place INTEGER NOT NULL DEFAULT 0;
UPDATE guidance SET place = number;

-- Who looks after a rollout. Shown, never enforced.
CREATE TABLE claims (
    rollout  TEXT PRIMARY KEY,
    holder   TEXT NOT NULL,           -- '' after a release
    uid      INTEGER,                 -- of the holder, or of who released it last
    verified INTEGER NOT NULL,
    since    INTEGER NOT NULL,        -- when it was claimed, or released
    seq      INTEGER NOT NULL,        -- the event that says so
    note_seq INTEGER                  -- the event with the newest note for the next person
) WITHOUT ROWID;

-- Presence, not derived from events: seconds old at best, and nobody checks it. A visit ends after
-- some time without a word of the console, or without a key; `seq` and `step` are of the last time
-- that a key had been pressed.
CREATE TABLE looks (
    rollout     TEXT NOT NULL,
    name        TEXT NOT NULL,
    uid         INTEGER NOT NULL,
    verified    INTEGER NOT NULL,
    first       INTEGER NOT NULL,     -- when this person first looked
    last        INTEGER NOT NULL,     -- when they were last seen looking
    here        INTEGER NOT NULL,     -- 0 once they turned to something else
    visits      INTEGER NOT NULL,
    visit_at    INTEGER NOT NULL,     -- when the newest visit began
    seq         INTEGER NOT NULL,     -- newest event of the rollout that they may have seen; 0 for none
    step        INTEGER NOT NULL,     -- where they were then
    seen_at     INTEGER NOT NULL,     -- when that was; 0 for never
    before_seq  INTEGER NOT NULL,     -- the same three as the newest visit began
    before_step INTEGER NOT NULL,
    before_at   INTEGER NOT NULL,
    looked_us   INTEGER NOT NULL,     -- microseconds of looking
    active_us   INTEGER NOT NULL,     -- of those, with a key pressed in the last minute
    PRIMARY KEY (rollout, uid, name)
) WITHOUT ROWID;
