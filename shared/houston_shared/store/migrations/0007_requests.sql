-- A start that is asked again is found by its key: without an index by a look at every rollout.
CREATE INDEX rollouts_request ON rollouts (request);
