"""Presence: the columns of `looks`, and when a visit of a person to a rollout ends.

The recorder counts by it, readers judge by it.
"""

COLUMNS = (
    "rollout, name, uid, verified, first, last, here, visits, visit_at, seq, step, seen_at,"
    " before_seq, before_step, before_at, looked_us, active_us"
)
"""In the order of the table: two texts, then whole numbers."""

SILENCE_US = 30_000_000
"""Microseconds without a word of the console after which its person has gone."""
IDLE_US = 600_000_000
"""Microseconds without a key after which a person at an open console has gone."""
WRITTEN_US = 5_000_000
"""How old presence in the database may be while its person is there."""
