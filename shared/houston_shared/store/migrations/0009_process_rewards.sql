-- What process reward models say of decisions: at most one score of each policy for each attempt.
CREATE TABLE process_rewards (
    rollout TEXT NOT NULL,
    step    INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    policy  TEXT NOT NULL,              -- the process reward model, e.g. prm@1
    score   REAL NOT NULL CHECK (score BETWEEN 0 AND 1),
    weak    INTEGER NOT NULL,           -- 1 below what [review] weak_decision was then
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    PRIMARY KEY (rollout, step, attempt, policy)
) WITHOUT ROWID;
