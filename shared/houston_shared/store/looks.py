"""When a visit of a person to a rollout ends: what the recorder counts by, and readers judge by."""

SILENCE_US = 30_000_000
"""Microseconds without a word of the console after which its person has gone."""
IDLE_US = 600_000_000
"""Microseconds without a key after which a person at an open console has gone."""
WRITTEN_US = 5_000_000
"""How old presence in the database may be while its person is there."""
