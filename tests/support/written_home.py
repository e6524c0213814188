"""A home written event by event, for tests of readers: journal and derived tables are the
recorder's own, without its sockets, checks and guidance transaction."""

from pathlib import Path
from typing import Any

from houston_daemon.recorder import journal_writer
from houston_daemon.recorder.disk import home_files
from houston_daemon.recorder.disk.writer_connection import open_writer
from houston_daemon.recorder.journal_writer import (
    EventBody,
    EventKey,
    JournalWriter,
    prepare_inline_body,
)
from houston_shared.home import Home
from houston_shared.records import (
    CallIntent,
    ContextHead,
    ForkBody,
    ObservationBody,
    Record,
    SampleBody,
    TaskRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.store.event_bodies import (
    GuidanceDelivered,
    GuidanceQueued,
    StoredObservation,
    StoredSample,
    StoredSpec,
)
from houston_shared.store.presence_queries import PresenceRow
from houston_shared.times_and_counts import now_us


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


def result(call: ToolCall, text: str, **fields: Any) -> ToolResult:
    return ToolResult(call=call, kind="command", success=True, text=text, **fields)


def stored(kind: type[Any], record: Record, **more: Any) -> Any:
    """A worker's record as the recorder stores it, with the active time."""
    return kind(**{name: getattr(record, name) for name in record.__struct_fields__}, **more)


class WrittenHome:
    """Writes a home's database; the connection stays open, like a recorder's."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.home.blobs.mkdir(parents=True, exist_ok=True)
        self.connection = open_writer(self.home)
        self.connection.execute("PRAGMA synchronous = OFF")  # a test, not a promise
        self.journal = JournalWriter(self.connection)
        if not self.home.head_file.exists():
            home_files.write_chain_head(self.home, self.journal.seq, self.journal.chain)

    @property
    def seq(self) -> int:
        return self.journal.seq

    def close(self) -> None:
        self.connection.close()

    def event(self, key: EventKey, kind: str, record: Record, blob: bool = False) -> int:
        """Append one event and commit; with `blob`, its body goes to blobs/. Returns its seq."""
        content = prepare_inline_body(record)
        if blob:
            name = journal_writer.write_blob(self.home, content.data)
            content = EventBody(record, content.data, content.digest, name)
        self.connection.execute("BEGIN")
        seq = self.journal.append(key, kind, content)
        self.connection.execute("COMMIT")
        return seq

    def erase(self, seq: int) -> None:
        """Erase a body: the header and the hashes stay."""
        self.connection.execute(
            "UPDATE events SET body = NULL, blob = NULL, erased = 1 WHERE seq = ?", (seq,)
        )

    def insert(self, table: str, **values: Any) -> None:
        """A row that no event of today derives."""
        marks = ", ".join("?" * len(values))
        self.connection.execute(
            f"INSERT INTO {table} ({', '.join(values)}) VALUES ({marks})", tuple(values.values())
        )

    def rollout(self, name: str, task: str = "count-words", **options: Any) -> str:
        """A task and a running rollout of it. options: columns of `rollouts`, or
        `seed`, `thoughts`, `host_root` and `rules`, lines of the task's table."""
        rules = f"[rules]\n{said}\n" if (said := options.pop("rules", "")) else ""
        definition = TaskRecord(
            name=task,
            folder="/tasks",
            definition=f'name = "{task}"\ninstructions = "Count."\n{rules}',
            instructions="Count.",
        )
        if not self.connection.execute("SELECT 1 FROM tasks WHERE name = ?", (task,)).fetchone():
            self.event(EventKey(), "task", definition)
        spec = StoredSpec(
            rollout=name,
            task=definition,
            engine="script:x",
            engine_settings={},
            policy="policy@1",
            seed=options.pop("seed", 0),
            thoughts=options.pop("thoughts", "keep"),
            host_root=options.pop("host_root", ""),
            by="person:ada",
        )
        self.event(EventKey(name), "spec", spec)
        for column, value in {"state": "running", **options}.items():
            self.connection.execute(f"UPDATE rollouts SET {column} = ? WHERE id = ?", (value, name))
        return name

    def head(self, rollout: str, head: ContextHead) -> int:
        return self.event(EventKey(rollout, part="head"), "head", head)

    def sampled(
        self, rollout: str, step: int, body: SampleBody, attempt: int = 1, part: str = "sample"
    ) -> int:
        """A sample, with the active time of the step: 1.5 s each."""
        kept = stored(StoredSample, body, active_us=1_500_000 * step)
        return self.event(EventKey(rollout, step, attempt, part), "sample", kept)

    def step(
        self,
        rollout: str,
        step: int,
        body: SampleBody | None = None,
        texts: tuple[str, ...] = (),
        observation: ObservationBody | None = None,
        *,
        attempt: int = 1,
        part: str = "sample",
        blob: bool = False,
        cut: bool = False,
        open: bool = False,
    ) -> int:
        """A step; `texts` are the results of its calls. Returns the sample's seq.

        part: of the sample. blob: results lie in blobs/. cut: something of them was left out.
        open: it stops before its observation.
        """
        body = body or sample()
        sample_seq = self.sampled(rollout, step, body, attempt, part)
        for index, call in enumerate(body.calls):
            self.event(
                EventKey(rollout, step, attempt, f"intent.{index}"), "intent", CallIntent(call=call)
            )
            if index < len(texts):
                key = EventKey(rollout, step, attempt, f"call.{index}")
                self.event(key, "result", result(call, texts[index], cut=cut), blob)
        if not open:
            closing = observation or ObservationBody(tail=f"[step {step}]")
            kept = stored(StoredObservation, closing, active_us=1_500_000 * step)
            self.event(EventKey(rollout, step, attempt, "observation"), "observation", kept)
        return sample_seq

    def guide(self, rollout: str, id: str, text: str, **fields: Any) -> int:
        """Queued guidance; returns its seq."""
        values: dict[str, Any] = {"author": "ada", "mode": "next", **fields}
        return self.event(EventKey(rollout), "guidance", GuidanceQueued(id=id, text=text, **values))

    def look(self, rollout: str, name: str, **fields: Any) -> None:
        """A person who looked at a rollout until now. fields: columns of `looks`."""
        numbers = dict.fromkeys(PresenceRow.__struct_fields__, 0)
        now = {"first": now_us(), "last": now_us(), "here": 1, "visits": 1, "visit_at": now_us()}
        self.insert("looks", **{**numbers, **now, "rollout": rollout, "name": name, **fields})

    def deliver(self, rollout: str, step: int, *ids: str) -> None:
        self.event(EventKey(rollout, step), "delivery", GuidanceDelivered(ids=ids))

    def fork(self, rollout: str, step: int, body: ForkBody) -> int:
        return self.event(EventKey(rollout, step, part="fork"), "fork", body)
