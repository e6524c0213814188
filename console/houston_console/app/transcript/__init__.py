"""The trajectory: one virtual widget over all steps, what it reads and keeps, and search in it."""
