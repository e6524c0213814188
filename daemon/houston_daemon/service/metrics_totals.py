"""Counters that are read from the database, and so survive every restart.

Small tables are asked whole. Samples and steps are read once from the first and from then on only
as far as they are new, a page or a rollout at a time, so that no read transaction is long.
"""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

PAGE = 20_000
"""Rows of samples read at a time."""
LATENCY_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 14_400)
"""Seconds from a message's queueing to its delivery; a step may take an hour."""


USAGE = ("prompt", "cached", "completion", "reasoning")
"""Kinds of tokens that endpoints count."""


class Totals:
    """Read from one database; belongs to one thread."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._seen = 0
        self.events = 0
        """Events of the journal."""
        self.steps = 0
        """Closed steps."""
        self.rollouts: dict[str, int] = {}
        self.paused: dict[str, int] = {}
        """Paused rollouts by the owner of the pause; `person` for all people."""
        self.guidance: dict[str, int] = {}
        self.guidance_ever = 0
        self.latencies: dict[int, int] = {}
        """Delivered messages by the bucket that they fall into first."""
        self.latency_sum = 0.0
        self.latency_count = 0
        self.drift: Counter[str] = Counter()
        """Samples by drift class."""
        self.samples: Counter[str] = Counter()
        """Samples by engine."""
        self.prompt_tokens = 0
        self.cached_tokens = 0
        """Of those prompts of which the engine said how much its cache held."""
        self.sampled_tokens = 0
        self.usage: Counter[tuple[str, str]] = Counter()
        """Tokens by engine and kind (prompt, cached, completion, reasoning), as engines say."""
        self.attention: Counter[str] = Counter()
        """Closed steps by signal."""
        self._looked: dict[str, int] = {}
        """By rollout, the newest step whose signals are counted."""

    def read(self) -> None:
        """Bring everything up to date. Raises sqlite3.Error."""
        uri = f"{self._database.as_uri()}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True, timeout=2)) as reader:
            self._small(reader)
            while self._page(reader):
                pass
            self._signals(reader)

    def _small(self, reader: sqlite3.Connection) -> None:
        ((self.events, self.steps),) = reader.execute(
            "SELECT (SELECT coalesce(max(seq), 0) FROM events),"
            " (SELECT coalesce(sum(steps), 0) FROM rollouts)"
        ).fetchall()
        self.rollouts = dict(
            reader.execute("SELECT state, count(*) FROM rollouts GROUP BY state").fetchall()
        )
        self.paused = dict(
            reader.execute(
                "SELECT CASE WHEN paused_by LIKE 'person:%' THEN 'person' ELSE paused_by END,"
                " count(*) FROM rollouts WHERE state = 'paused' GROUP BY 1"
            ).fetchall()
        )
        self.guidance = dict(
            reader.execute("SELECT state, count(*) FROM guidance GROUP BY state").fetchall()
        )
        self.guidance_ever = sum(self.guidance.values())
        first = " ".join(f"WHEN s <= {top} THEN {top}" for top in LATENCY_BUCKETS)
        rows = reader.execute(
            f"SELECT CASE {first} ELSE 0 END, count(*), sum(s) FROM (SELECT"
            " (delivered_at - queued_at) / 1e6 AS s FROM guidance WHERE state = 'delivered')"
            " GROUP BY 1"
        ).fetchall()
        self.latencies = {top: count for top, count, _ in rows if top}
        self.latency_count = sum(count for _, count, _ in rows)
        self.latency_sum = sum(seconds for _, _, seconds in rows)

    def _page(self, reader: sqlite3.Connection) -> bool:
        """Take in the next samples; whether there may be more."""
        rows = reader.execute(
            "SELECT seq, drift, engine, prompt_tokens, cached_tokens, sampled_ids,"
            " completion_tokens, reasoning_tokens FROM samples WHERE seq > ? ORDER BY seq LIMIT ?",
            (self._seen, PAGE),
        ).fetchall()
        for seq, drift, engine, prompt, cached, sampled, *answer in rows:
            self._seen = seq
            self.drift[drift] += 1
            self.samples[engine] += 1
            self.sampled_tokens += sampled or 0
            for kind, count in zip(USAGE, (prompt, cached, *answer), strict=True):
                if count is not None:
                    self.usage[engine, kind] += count
            if prompt is not None and cached is not None:
                self.prompt_tokens += prompt
                self.cached_tokens += cached
        return len(rows) == PAGE

    def _signals(self, reader: sqlite3.Connection) -> None:
        """Count the signals of steps that closed since the last time."""
        for rollout, steps in reader.execute("SELECT id, steps FROM rollouts").fetchall():
            known = self._looked.get(rollout, 0)
            if steps <= known:
                continue
            rows = reader.execute(
                "SELECT attention FROM steps WHERE rollout = ? AND step > ? AND step <= ?"
                " AND current = 1 AND attention <> ''",
                (rollout, known, steps),
            )
            for (names,) in rows.fetchall():
                self.attention.update(names.split(","))
            self._looked[rollout] = steps
