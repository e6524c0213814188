-- Before a blob is removed, the recorder asks whether another event names it: with no index that was
-- a scan of all events for each, in the one thread that answers workers.
CREATE INDEX events_blob ON events (blob) WHERE blob IS NOT NULL;
