-- Rollouts that try again what another one did, told what a critic said of it.
CREATE TABLE refinements (
    rollout TEXT PRIMARY KEY,
    refines TEXT NOT NULL,              -- the attempt that was criticised
    critic  TEXT NOT NULL,              -- the critic's policy, else its engine
    seq     INTEGER NOT NULL            -- the spec that has the text
) WITHOUT ROWID;
CREATE INDEX refinements_of ON refinements (refines);
