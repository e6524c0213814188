"""A home as the recorder would leave it, made fast: events with their chain, and the tables.

Direct inserts, so that 50,000 steps take seconds; `test_homes.py` holds it against the recorder.
Every method commits, so that a console on the same home sees each as news.
"""

import sqlite3
from pathlib import Path
from typing import Any

import msgspec

from houston_shared.home import Home
from houston_shared.records import (
    Call,
    Delivered,
    FileChange,
    ForkBody,
    Head,
    ObservationBody,
    Result,
    RolloutSpec,
    SampleBody,
    TaskRecord,
    TerminalSpan,
)
from houston_shared.store import schema
from houston_shared.store.chain import GENESIS, body_hash, link

START_US = 1_763_000_000_000_000
MINUTE_US = 60_000_000


class HomeBuilder:
    """Writes one home."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.home = Home(path)
        self.db = sqlite3.connect(self.home.database, isolation_level=None)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute("PRAGMA synchronous = OFF")
        schema.migrate(self.db)
        self.seq = 0
        self.chain = GENESIS
        self.at = START_US
        self.guidance_number = 0
        self.open_transaction = False

    def close(self) -> None:
        self.db.close()

    def __enter__(self) -> "HomeBuilder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def bulk(self) -> None:
        """One transaction until `commit`."""
        self.db.execute("BEGIN")

    def commit(self) -> None:
        self.db.execute("COMMIT")

    # --- the journal -----------------------------------------------------------------------

    def event(
        self, rollout: str, step: int, part: str | None, kind: str, body: Any, attempt: int = 1
    ) -> int:
        raw = msgspec.msgpack.encode(body)
        digest = body_hash(raw)
        self.seq += 1
        self.at += MINUTE_US // 4
        self.chain = link(self.chain, self.seq, rollout, step, attempt, part, kind, self.at, digest)
        self.db.execute(
            "INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL, 0, ?, ?)",
            (self.seq, rollout, step, attempt, part, kind, self.at, raw, digest, self.chain),
        )
        return self.seq

    def _rollout(self, rollout: str, **columns: Any) -> None:
        columns |= {"updated_at": self.at, "last_seq": self.seq}
        names = ", ".join(f"{name} = :{name}" for name in columns)
        self.db.execute(f"UPDATE rollouts SET {names} WHERE id = :id", {**columns, "id": rollout})

    # --- what happens ----------------------------------------------------------------------

    def rollout(
        self,
        rollout: str,
        task: str = "count-words",
        instructions: str = "Write the ten most frequent words of corpus.txt to answer.json.",
        state: str = "running",
        host_root: str = "",
        sandbox: str = "bubblewrap",
    ) -> None:
        record = TaskRecord(name=task, folder="/tasks", definition="", instructions=instructions)
        spec = RolloutSpec(
            rollout=rollout,
            task=record,
            engine="embedded",
            engine_settings={},
            policy="policy@1",
            host_root=host_root,
        )
        task_seq = self.event("", 0, None, "task", record)
        self.db.execute("INSERT OR REPLACE INTO tasks VALUES (?, ?, ?)", (task, task_seq, self.at))
        spec_seq = self.event(rollout, 0, None, "spec", spec)
        self.db.execute(
            "INSERT INTO rollouts (id, task, state, engine, policy, sandbox, spec_seq, created_at,"
            " updated_at, last_seq) VALUES (?, ?, ?, 'embedded', 'policy@1', ?, ?, ?, ?, ?)",
            (rollout, task, state, sandbox, spec_seq, self.at, self.at, self.seq),
        )
        head = Head(
            system="You work in a terminal. A person may speak inside <real_user>.",
            task=instructions,
            tools=(),
            rendered="",
            token_ids=(1, 2, 3),
            dialect="chatml-json",
            tokenizer="",
        )
        head_seq = self.event(rollout, 0, "head", "head", head)
        self._rollout(rollout, head_seq=head_seq)

    def state(self, rollout: str, state: str, by: str = "", reason: str = "") -> None:
        self.event(rollout, 0, None, "state", {"state": state, "by": by, "reason": reason})
        self._rollout(rollout, state=state, paused_by=by, reason=reason)

    def activity(self, rollout: str, activity: str) -> None:
        self.db.execute("UPDATE rollouts SET activity = ? WHERE id = ?", (activity, rollout))

    def sample(
        self,
        rollout: str,
        step: int,
        thought: str = "",
        calls: tuple[tuple[str, dict[str, Any]], ...] = (),
        drift: str = "clean",
        malformed: str = "",
    ) -> tuple[Call, ...]:
        """The step begins: it is open until `observe`."""
        made = tuple(
            Call(id=f"{step}.{i}", name=name, arguments=given)
            for i, (name, given) in enumerate(calls)
        )
        row = self.db.execute(
            "SELECT sample_seq FROM steps WHERE rollout = ? AND step = ?", (rollout, step - 1)
        ).fetchone()
        ids = tuple(range(step * 10, step * 10 + 8))
        body = SampleBody(
            role="policy",
            parent_seq=row[0] if row else None,
            kept=(step - 1) * 16 if row else 0,
            new_prompt_ids=ids,
            token_ids=ids,
            logprobs=tuple(-0.1 for _ in ids),
            logprob_kind="policy",
            finish_reason="stop",
            policy="policy@1",
            engine="embedded",
            parameters={"temperature": 0.7},
            drift=drift,
            thought=thought,
            calls=made,
            malformed=malformed,
            prompt_tokens=900 + step * 30,
            cached_tokens=800 + step * 30,
            seconds=1.5,
        )
        seq = self.event(rollout, step, "sample", "sample", body)
        self.db.execute(
            "INSERT INTO steps (rollout, step, attempt, sample_seq, last_seq, policy, drift,"
            " tools, calls, started_at) VALUES (?, ?, 1, ?, ?, 'policy@1', ?, ?, ?, ?)",
            (rollout, step, seq, seq, drift, ",".join(n for n, _ in calls), len(calls), self.at),
        )
        self.db.execute(
            "INSERT INTO samples (seq, rollout, step, attempt, role, parent_seq, kept, new_ids,"
            " sampled_ids, prompt_tokens, cached_tokens, finish_reason, logprob_kind, engine,"
            " policy, drift, seconds) VALUES"
            " (?, ?, ?, 1, 'policy', ?, ?, 8, 8, ?, ?, 'stop', 'policy', 'embedded', 'policy@1',"
            " ?, 1.5)",
            (
                seq,
                rollout,
                step,
                body.parent_seq,
                body.kept,
                body.prompt_tokens,
                body.cached_tokens,
                drift,
            ),
        )
        self._rollout(rollout)
        return made

    def result(
        self,
        rollout: str,
        step: int,
        call: Call,
        text: str,
        success: bool = True,
        kind: str = "command",
        forged: int = 0,
    ) -> None:
        index = int(call.id.partition(".")[2])
        body = Result(
            call=call, kind=kind, success=success, text=text, seconds=0.4, forged_tags=forged
        )
        seq = self.event(rollout, step, f"call.{index}", "result", body)
        if call.name.startswith(("search", "find", "web")):
            self.db.execute(
                "INSERT INTO searches VALUES (?, ?, 1, ?, ?, ?, 3, ?)",
                (rollout, step, index, call.name, str(call.arguments.get("query", "")), seq),
            )
        self.db.execute(
            "UPDATE steps SET errors = errors + ?, last_seq = ? WHERE rollout = ? AND step = ?",
            (not success, seq, rollout, step),
        )
        self._rollout(rollout)

    def observe(
        self,
        rollout: str,
        step: int,
        files: tuple[FileChange, ...] = (),
        score: float | None = None,
        attention: tuple[str, ...] = (),
        spans: tuple[TerminalSpan, ...] = (),
    ) -> None:
        """The step closes; guidance that is queued joins it."""
        body = ObservationBody(
            tail=f"[step {step} · active 00:{step % 60:02} · 2 evaluations left]",
            snapshot="a1b2c3d4",
            files=files,
            attention=attention,
            spans=spans,
        )
        seq = self.event(rollout, step, "observation", "observation", body)
        waiting = self.db.execute(
            "SELECT id FROM guidance WHERE rollout = ? AND state = 'queued' ORDER BY number",
            (rollout,),
        ).fetchall()
        if waiting:
            delivered = self.event(
                rollout, step, None, "delivery", {"ids": [w[0] for w in waiting]}
            )
            self.db.execute(
                "UPDATE guidance SET state = 'delivered', delivered_step = ?, delivered_seq = ?,"
                " delivered_at = ? WHERE rollout = ? AND state = 'queued'",
                (step, delivered, self.at, rollout),
            )
        for change in files:
            self.db.execute(
                "INSERT INTO file_changes VALUES (?, ?, 1, ?, ?, ?, ?, ?)",
                (rollout, step, change.path, change.kind, change.added, change.removed, seq),
            )
        for span in spans:
            self.db.execute(
                "INSERT OR REPLACE INTO terminals VALUES (?, ?, ?, ?, ?)",
                (rollout, span.host, span.terminal, span.end, seq),
            )
        self.db.execute(
            "UPDATE steps SET observation_seq = ?, last_seq = ?, guided = ?, attention = ?,"
            " score = ?, snapshot = 'a1b2c3d4', closed_at = ?, active_us = ?"
            " WHERE rollout = ? AND step = ?",
            (
                seq,
                self.seq,
                len(waiting),
                ",".join(attention),
                score,
                self.at,
                step * 30_000_000,
                rollout,
                step,
            ),
        )
        self._rollout(rollout, steps=step, active_us=step * 30_000_000)
        failed = self.db.execute(
            "SELECT errors FROM steps WHERE rollout = ? AND step = ?", (rollout, step)
        ).fetchone()[0]
        self.db.execute(
            "UPDATE rollouts SET errors = errors + ? WHERE id = ?", (bool(failed), rollout)
        )
        if score is not None:
            self.db.execute(
                "UPDATE rollouts SET last_score = ?1, best_score = max(coalesce(best_score, 0), ?1),"
                " evaluations = evaluations + 1 WHERE id = ?2",
                (score, rollout),
            )

    def step(
        self,
        rollout: str,
        step: int,
        thought: str = "",
        calls: tuple[tuple[str, dict[str, Any]], ...] = (("run_command", {"command": "ls"}),),
        results: tuple[str, ...] = ("ok",),
        success: bool = True,
        **closing: Any,
    ) -> None:
        """A whole step."""
        made = self.sample(rollout, step, thought, calls)
        for call, text in zip(made, results, strict=False):
            self.result(rollout, step, call, text, success)
        self.observe(rollout, step, **closing)

    def guide(
        self, rollout: str, id: str, text: str, author: str = "alice", mode: str = "next"
    ) -> None:
        self.guidance_number += 1
        seq = self.event(rollout, 0, None, "guidance", Delivered(id=id, author=author, text=text))
        self.db.execute(
            "INSERT INTO guidance (id, number, rollout, author, uid, verified, mode, state,"
            " text_seq, queued_at) VALUES (?, ?, ?, ?, 1000, 1, ?, 'queued', ?, ?)",
            (id, self.guidance_number, rollout, author, mode, seq, self.at),
        )
        self._rollout(rollout)

    def withdraw(self, rollout: str, id: str) -> None:
        self.event(rollout, 0, None, "withdrawal", {"id": id})
        self.db.execute("UPDATE guidance SET state = 'withdrawn' WHERE id = ?", (id,))
        self._rollout(rollout)

    def fork(self, rollout: str, number: int, step: int, k: int, summary: str) -> None:
        body = ForkBody(k=k, first_kept_step=k + 1, summary=summary)
        seq = self.event(rollout, step, "fork", "fork", body)
        self.db.execute(
            "INSERT INTO forks VALUES (?, ?, ?, ?, ?, 0, NULL, ?)",
            (rollout, number, step, k, k + 1, seq),
        )
        self._rollout(rollout, fork_seq=seq, forks=number)
