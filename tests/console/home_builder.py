"""A home to look at: rollouts, steps, guidance and files, written by the recorder's own journal.

Every method commits, so that a console on the same home sees each as news; inside `bulk` all of
them are one transaction, so that 50,000 steps take seconds.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from houston_daemon.recorder.journal_writer import EventKey
from houston_shared.records import (
    ContextHead,
    ForkBody,
    JobReport,
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
    GuidanceWithdrawn,
    ProcessRewardGiven,
    StepBookmarked,
    StoredObservation,
    StoredSample,
    StoredSpec,
    StoredState,
    VerdictGiven,
)
from tests.support.written_home import WrittenHome, stored

Calls = tuple[tuple[str, dict[str, Any]], ...]
LIST: Calls = (("run_command", {"command": "ls"}),)


class HomeBuilder(WrittenHome):
    """Writes one home as a daemon would."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._bulk = False
        self._samples: dict[tuple[str, int], int] = {}
        self._waiting: dict[str, list[str]] = {}

    def __enter__(self) -> "HomeBuilder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def bulk(self) -> Iterator[None]:
        """One transaction."""
        self._bulk = True
        self.connection.execute("BEGIN")
        yield
        self.connection.execute("COMMIT")
        self._bulk = False

    def event(self, key: EventKey, kind: str, record: Record, blob: bool = False) -> int:
        if not self._bulk:
            return super().event(key, kind, record, blob)
        self.journal.appended.clear()
        return self.journal.append(key, kind, record)

    def start(
        self,
        rollout: str,
        task: str = "count-words",
        instructions: str = "Write the ten most frequent words of corpus.txt to answer.json.",
        host_root: str = "",
        sandbox: str = "bubblewrap",
        definition: str = "",
        hosts: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        """A running rollout with its head."""
        record = TaskRecord(
            name=task,
            folder="/tasks",
            definition=definition or f'name = "{task}"\ninstructions = "Count."\n',
            instructions=instructions,
        )
        self.event(EventKey(), "task", record)
        spec = StoredSpec(
            rollout=rollout,
            task=record,
            engine="embedded",
            engine_settings={},
            policy="policy@1",
            host_root=host_root,
            sandbox=sandbox,
            hosts=hosts or {},
            by="person:ada",
        )
        self.event(EventKey(rollout), "spec", spec)
        self.state(rollout, "running", "supervisor")
        self.head(
            rollout,
            ContextHead(
                system="You work in a terminal. A person may speak inside <real_user>.",
                task=instructions,
                tools=(),
                rendered="",
                token_ids=(1, 2, 3),
                dialect="chatml-json",
                tokenizer="",
            ),
        )

    def state(self, rollout: str, state: Any, by: str, reason: str = "") -> None:
        self.event(EventKey(rollout), "state", StoredState(state=state, by=by, reason=reason))

    def activity(self, rollout: str, activity: str) -> None:
        """What a heartbeat says."""
        self.connection.execute(
            "UPDATE rollouts SET activity = ? WHERE id = ?", (activity, rollout)
        )

    def begin(
        self, rollout: str, step: int, thought: str = "", calls: Calls = LIST, **fields: Any
    ) -> tuple[ToolCall, ...]:
        """The policy sampled a step; it is open until `close_step`."""
        stored_calls = tuple(
            ToolCall(id=f"{step}.{i}", name=name, arguments=given)
            for i, (name, given) in enumerate(calls)
        )
        parent = self._samples.get((rollout, step - 1))
        new = tuple(range(step * 10, step * 10 + 8))
        body = SampleBody(
            role="policy",
            parent_seq=parent,
            kept=(step - 1) * 16 if parent else 0,
            logprobs=tuple(-0.1 for _ in new),
            logprob_kind="policy",
            finish_reason="stop",
            policy="policy@1",
            engine="embedded",
            parameters={"temperature": 0.7},
            drift=fields.pop("drift", "clean" if parent else "forked"),
            thought=thought,
            calls=stored_calls,
            seconds=1.5,
            **{
                "new_prompt_ids": new,
                "token_ids": new,
                "prompt_tokens": 900 + step * 30,
                "cached_tokens": 800 + step * 30,
                **fields,
            },
        )
        record = stored(StoredSample, body, active_us=step * 30_000_000)
        seq = self.event(EventKey(rollout, step, part="sample"), "sample", record)
        self._samples[rollout, step] = seq
        return stored_calls

    def answer(
        self,
        rollout: str,
        step: int,
        call: ToolCall,
        text: str,
        success: bool = True,
        **fields: Any,
    ) -> None:
        """A call returned."""
        values = {"kind": "command", "seconds": 0.4, **fields}
        body = ToolResult(call=call, success=success, text=text, **values)
        part = f"call.{call.id.partition('.')[2]}"
        self.event(EventKey(rollout, step, part=part), "result", body)

    def close_step(self, rollout: str, step: int, **fields: Any) -> None:
        """The observation; guidance that waits joins it."""
        body = ObservationBody(
            tail=f"[step {step} · active {step // 2} min · 2 evaluations left]",
            snapshot="a1b2c3d4",
            **fields,
        )
        record = stored(StoredObservation, body, active_us=step * 30_000_000)
        self.event(EventKey(rollout, step, part="observation"), "observation", record)
        if waiting := self._waiting.pop(rollout, []):
            self.event(EventKey(rollout, step), "delivery", GuidanceDelivered(ids=tuple(waiting)))

    def whole(
        self,
        rollout: str,
        step: int,
        thought: str = "",
        calls: Calls = LIST,
        texts: tuple[str, ...] = ("ok",),
        success: bool = True,
        result: dict[str, Any] | None = None,
        **closing: Any,
    ) -> None:
        """A step from its sample to its observation."""
        stored_calls = self.begin(rollout, step, thought, calls)
        for call, text in zip(stored_calls, texts, strict=False):
            self.answer(rollout, step, call, text, success, **(result or {}))
        self.close_step(rollout, step, **closing)

    def scored(self, rollout: str, step: int, thought: str, score: float) -> None:
        """A step that was evaluated."""
        fields = {"overall_score": score, "state": "scored"}
        evaluated = {"kind": "eval", "fields": fields}
        text = f"overall_score {score:.1f}"
        self.whole(rollout, step, thought, (("submit", {}),), (text,), result=evaluated)

    def say(
        self, rollout: str, id: str, text: str, author: str = "alice", mode: Any = "next"
    ) -> None:
        """Guidance is queued."""
        body = GuidanceQueued(id=id, author=author, text=text, mode=mode, uid=1000)
        self.event(EventKey(rollout), "guidance", body)
        self._waiting.setdefault(rollout, []).append(id)

    def take_back(self, rollout: str, id: str) -> None:
        """It is withdrawn."""
        self.event(EventKey(rollout), "withdraw", GuidanceWithdrawn(id=id, by="alice"))
        self._waiting[rollout].remove(id)

    def judged(
        self, rollout: str, first: int, last: int, verdict: Any, reason: str = "", **by: Any
    ) -> None:
        """Steps are kept or masked; by a person unless `source` is another."""
        body = VerdictGiven(last=last, verdict=verdict, reason=reason, **{"by": "alice", **by})
        self.event(EventKey(rollout, first), "verdict", body)

    def rewarded(
        self, rollout: str, step: int, score: float, policy: str = "prm@1", attempt: int = 1
    ) -> None:
        """A process reward model scored a step; below 0.3 it is weak."""
        body = ProcessRewardGiven(policy=policy, score=score, weak=score < 0.3)
        self.event(EventKey(rollout, step, attempt), "process-reward", body)

    def job(self, rollout: str, step: int, session: str, command: str, **fields: Any) -> None:
        """How a job stands; times in UTC microseconds."""
        values = {"id": f"{session}@{step}", "log_start": 0, "host": "local", **fields}
        body = JobReport(step=step, session=session, command=command, **values)
        self.event(EventKey(rollout, step), "job", body)

    def marked(self, rollout: str, step: int, author: str, note: str = "") -> None:
        """Somebody's bookmark, with a note where there is one."""
        self.event(EventKey(rollout, step), "bookmark", StepBookmarked(author=author, note=note))

    def fork_before(self, rollout: str, step: int, k: int, summary: str) -> None:
        """A new context begins."""
        body = ForkBody(k=k, first_kept_step=k + 1, summary=summary)
        self.event(EventKey(rollout, step, part="fork"), "fork", body)
