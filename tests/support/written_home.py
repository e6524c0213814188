"""A home written event by event, for tests of readers: the schema and the chain are the real ones.

What a recorder would derive is derived here the same way, and only as far as readers look at it.
"""

import hashlib
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import zstandard

from houston_shared.home import Home
from houston_shared.records import (
    Call,
    Delivered,
    ForkBody,
    Head,
    Intent,
    ObservationBody,
    Result,
    RolloutSpec,
    SampleBody,
    TaskRecord,
)
from houston_shared.store import chain, schema

START = 1_790_000_000_000_000
"""Time of the first event, microseconds; every event is a second later."""
_encode = msgspec.msgpack.encode


def sample(thought: str = "think", **fields: Any) -> SampleBody:
    """A policy sample with what a test does not care about filled in."""
    values: dict[str, Any] = {
        "role": "policy",
        "parent_seq": None,
        "kept": 0,
        "new_prompt_ids": None,
        "token_ids": None,
        "logprobs": None,
        "logprob_kind": "none",
        "finish_reason": "stop",
        "policy": "policy@1",
        "engine": "script",
        "parameters": {},
        "drift": "clean",
    }
    return SampleBody(thought=thought, **{**values, **fields})


def result(call: Call, text: str, **fields: Any) -> Result:
    return Result(call=call, kind="command", success=True, text=text, **fields)


class WrittenHome:
    """Writes a home's database; the connection stays open, like a recorder's."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        path.mkdir(parents=True, exist_ok=True)
        self.connection = sqlite3.connect(self.home.database, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        schema.migrate(self.connection)
        self.seq = 0
        self.chain = chain.GENESIS
        self.guidance_number = 0

    def close(self) -> None:
        self.connection.close()

    def at(self) -> int:
        return START + self.seq * 1_000_000

    def event(
        self,
        rollout: str,
        kind: str,
        body: Any,
        step: int = 0,
        attempt: int = 1,
        part: str | None = None,
        blob: bool = False,
    ) -> int:
        """Append one event; with `blob`, its body goes to blobs/. Returns its seq."""
        raw = _encode(body)
        digest = chain.body_hash(raw)
        self.seq += 1
        at = self.at()
        header = (self.seq, rollout, step, attempt, part, kind, at)
        self.chain = chain.link(self.chain, *header, digest)
        name = self._blob(raw) if blob else None
        self.connection.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?)",
            (*header, None if blob else raw, name, digest, self.chain),
        )
        return self.seq

    def _blob(self, raw: bytes) -> str:
        name = hashlib.sha256(raw).hexdigest()
        folder = self.home.blobs / name[:2]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.zst").write_bytes(zstandard.ZstdCompressor().compress(raw))
        return name

    def erase(self, seq: int) -> None:
        """Erase a body as the recorder does: the header and the hashes stay."""
        self.connection.execute(
            "UPDATE events SET body = NULL, blob = NULL, erased = 1 WHERE seq = ?", (seq,)
        )

    def insert(self, table: str, **values: Any) -> None:
        marks = ", ".join("?" * len(values))
        self.connection.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values())
        )

    def rollout(self, name: str, task: str = "count-words", **columns: Any) -> str:
        """A task and a running rollout of it."""
        definition = TaskRecord(
            name=task,
            folder="/tasks",
            definition=f'name = "{task}"\ninstructions = "Count."\n',
            instructions="Count.",
        )
        if not self.connection.execute("SELECT 1 FROM tasks WHERE name = ?", (task,)).fetchone():
            seq = self.event("", "task", definition)
            self.insert("tasks", name=task, seq=seq, first_seen=self.at())
        spec = RolloutSpec(rollout=name, task=definition, engine="script:x", engine_settings={})
        seq = self.event(name, "rollout", spec)
        values: dict[str, Any] = {
            "id": name,
            "task": task,
            "state": "running",
            "engine": "script:x",
            "policy": "policy@1",
            "sandbox": "bubblewrap",
            "spec_seq": seq,
            "created_at": self.at(),
            "updated_at": self.at(),
            "last_seq": seq,
        }
        self.insert("rollouts", **{**values, **columns})
        return name

    def head(self, rollout: str, head: Head) -> int:
        seq = self.event(rollout, "head", head, part="head")
        self.connection.execute("UPDATE rollouts SET head_seq = ? WHERE id = ?", (seq, rollout))
        return seq

    def sampled(self, rollout: str, step: int, body: SampleBody, **keys: Any) -> int:
        """A sample with its row in the ledger's table."""
        part = keys.pop("part", "sample")
        seq = self.event(rollout, "sample", body, step, part=part, **keys)
        new, out = body.new_prompt_ids, body.token_ids
        self.insert(
            "samples",
            seq=seq,
            rollout=rollout,
            step=step,
            attempt=keys.get("attempt", 1),
            role=body.role,
            parent_seq=body.parent_seq,
            kept=body.kept,
            new_ids=None if new is None else len(new),
            sampled_ids=None if out is None else len(out),
            finish_reason=body.finish_reason,
            logprob_kind=body.logprob_kind,
            engine=body.engine,
            policy=body.policy,
            drift=body.drift,
        )
        return seq

    def step(
        self,
        rollout: str,
        step: int,
        body: SampleBody | None = None,
        texts: tuple[str, ...] = (),
        observation: ObservationBody | None = None,
        **options: Any,
    ) -> int:
        """A closed step; `texts` are the results of its calls. Returns the sample's seq.

        options: attempt, current, blob (for the results), open (stop before the observation).
        """
        body = body or sample()
        attempt = options.get("attempt", 1)
        sample_seq = self.sampled(rollout, step, body, attempt=attempt)
        started = self.at()
        for index, call in enumerate(body.calls):
            key = {"step": step, "attempt": attempt}
            self.event(rollout, "intent", Intent(call=call), part=f"intent.{index}", **key)
            if index < len(texts):
                done = result(call, texts[index])
                blob = options.get("blob", False)
                self.event(rollout, "result", done, part=f"call.{index}", blob=blob, **key)
        closed = None
        observation = observation or ObservationBody(tail=f"[step {step}]")
        if not options.get("open"):
            closed = self.event(
                rollout, "observation", observation, step, attempt, part="observation"
            )
            self._derive(rollout, step, attempt, observation, closed)
        self.insert(
            "steps",
            rollout=rollout,
            step=step,
            attempt=attempt,
            current=options.get("current", 1),
            sample_seq=sample_seq,
            observation_seq=closed,
            last_seq=self.seq,
            policy=body.policy,
            drift=body.drift,
            tools=",".join(call.name for call in body.calls),
            calls=len(body.calls),
            attention=",".join(observation.attention),
            started_at=started,
            closed_at=None if closed is None else self.at(),
            active_us=1_500_000 * step,
        )
        self.connection.execute(
            "UPDATE rollouts SET steps = ?, last_seq = ? WHERE id = ?", (step, self.seq, rollout)
        )
        return sample_seq

    def _derive(
        self, rollout: str, step: int, attempt: int, observation: ObservationBody, seq: int
    ) -> None:
        key = {"rollout": rollout, "step": step, "attempt": attempt, "seq": seq}
        for one in observation.files:
            values = {"path": one.path, "kind": one.kind, "added": one.added}
            self.insert("file_changes", **key, **values, removed=one.removed)
        for span in observation.spans:
            values = {"host": span.host, "terminal": span.terminal}
            self.insert("terminal_spans", **key, **values, start=span.start, end=span.end)

    def guide(self, rollout: str, id: str, text: str, **columns: Any) -> int:
        """Queued guidance; returns its seq."""
        said = Delivered(id=id, author=columns.get("author", "ada"), text=text)
        seq = self.event(rollout, "guidance", said)
        self.guidance_number += 1
        values: dict[str, Any] = {
            "id": id,
            "number": self.guidance_number,
            "rollout": rollout,
            "author": "ada",
            "verified": 1,
            "mode": "next",
            "state": "queued",
            "text_seq": seq,
            "queued_at": self.at(),
        }
        self.insert("guidance", **{**values, **columns})
        return seq

    def deliver(self, id: str, step: int) -> None:
        self.connection.execute(
            "UPDATE guidance SET state = 'delivered', delivered_step = ?, delivered_at = ?"
            " WHERE id = ?",
            (step, self.at(), id),
        )

    def fork(self, rollout: str, step: int, body: ForkBody) -> int:
        seq = self.event(rollout, "fork", body, step, part="fork")
        number = self.connection.execute(
            "SELECT count(*) + 1 FROM forks WHERE rollout = ?", (rollout,)
        ).fetchone()[0]
        self.insert(
            "forks",
            rollout=rollout,
            number=number,
            step=step,
            k=body.k,
            first_kept_step=body.first_kept_step,
            mechanical=body.mechanical,
            sample_seq=body.sample_seq,
            seq=seq,
        )
        self.connection.execute(
            "UPDATE rollouts SET fork_seq = ?, forks = ?, first_step = ? WHERE id = ?",
            (seq, number, body.first_kept_step, rollout),
        )
        return seq
