-- What a request cost, by the price of its engine then. Samples of before have no cost.
ALTER TABLE samples ADD COLUMN cost REAL;
CREATE INDEX samples_cost ON samples (rollout, cost) WHERE cost IS NOT NULL;

-- What a judge or a critic took to read a rollout; they are no samples of it.
CREATE TABLE review_costs (
    seq            INTEGER PRIMARY KEY,
    rollout        TEXT NOT NULL,
    reviewer       TEXT NOT NULL,       -- judge:ENGINE, critic:ENGINE
    request        TEXT NOT NULL,       -- key of the message, so that it counts once
    requests       INTEGER NOT NULL,    -- samples that were asked for
    prompt_tokens  INTEGER NOT NULL,
    sampled_tokens INTEGER NOT NULL,
    reckoned       INTEGER NOT NULL,    -- 1 where tokens are reckoned from bytes
    cost           REAL,                -- by the engine's price then; NULL without one
    at             INTEGER NOT NULL
);
CREATE INDEX review_costs_rollout ON review_costs (rollout);
