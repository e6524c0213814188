-- An index on (rollout, seq) was written with every event, into a page of its own for each rollout:
-- a third of the WAL. What a worker stores of its steps comes in the order of their keys, so
-- `events_key` has that order already (`store/in_order.py`); the few others are here.
DROP INDEX events_rollout;
CREATE INDEX events_aside ON events (rollout, seq, kind, part)
    -- not written as a list: SQLite would build a table of it with every event
    WHERE kind <> 'intent' AND kind <> 'result' AND kind <> 'observation' AND part IS NOT 'sample';

-- Samples are found by the events of their steps.
DROP INDEX samples_rollout;

-- `last_seq` of a step is the newest of its sample, its observation and what was joined to that:
-- calls leave the row alone, which saves a page again.
UPDATE steps SET last_seq = sample_seq WHERE observation_seq IS NULL;
