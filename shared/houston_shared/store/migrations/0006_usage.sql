-- What a request cost, as its endpoint counted it. Samples of before have no such counts.
ALTER TABLE samples ADD COLUMN completion_tokens INTEGER;
ALTER TABLE samples ADD COLUMN reasoning_tokens INTEGER;
