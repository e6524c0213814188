-- To whom the newest note of a claim is, and whether it was read.
ALTER TABLE claims ADD COLUMN note_to TEXT NOT NULL DEFAULT '';   -- '' for anybody
ALTER TABLE claims ADD COLUMN read_by TEXT NOT NULL DEFAULT '';   -- '' while nobody has read it
ALTER TABLE claims ADD COLUMN read_at INTEGER;
