"""A home read from Python, for notebooks and scripts: `houston_shared.open(home)`.

Records come one after the other in short read transactions, so nothing is held back by who reads,
also while the daemon writes; nothing can be written. `frame` gives the same as tables of pandas. It
adds no query of its own: everything is read by the plans in `store`. See docs/notebook.md.
"""

import importlib
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import msgspec

from houston_shared.config import load_configuration
from houston_shared.errors import HoustonError, UsageError, did_you_mean
from houston_shared.home import Home
from houston_shared.records import Guidance, RolloutState, StepRecord
from houston_shared.store import (
    annotation_queries,
    json_views,
    policy_queries,
    process_reward_queries,
    rollout_queries,
    step_json,
    step_queries,
)
from houston_shared.store.journal_events import OPEN_END, ReadPlan
from houston_shared.store.policy_queries import PolicyRow
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import iso_time

if TYPE_CHECKING:
    import pandas

JsonDict = dict[str, Any]
STEPS_PER_READ = 50
"""Steps of one read transaction."""
TIME_COLUMNS = {"at", "created_at", "updated_at", "queued_at", "delivered_at"}
"""What is a time in a frame, if it is there."""
SCORE_COLUMNS = {"best_score", "last_score", "final_score"}
"""What is a number in a frame, also where no rollout has one yet."""
COLUMNS = {
    "rollouts": "rollout task state paused_by reason cancelling engine policy group parent sandbox"
    " steps forks errors evaluations best_score last_score final_score active_seconds activity"
    " created_at updated_at",
    "steps": "rollout step thought calls observation guidance files verdict process_reward"
    " attention attention_reasons engine policy usage at active_seconds",
    "verdicts": "rollout step attempt source verdict by reason at counts",
    "guidance": "id rollout author text mode state step queued_at delivered_at",
    "policies": "name family number kind base base_hash hash folder parent run manifest seq"
    " created_at",
    "rows": "id kind rollout task group context provenance trained",
}
"""Those that every frame has, an empty one too; a test compares them with what is read."""


class StepVerdict(NamedTuple):
    """What one source says of one step."""

    rollout: str
    step: int
    attempt: int
    source: str
    """`rule`, `judge` or `human`."""
    verdict: str
    """`keep` or `mask`."""
    by: str
    """Which rule, judge or person."""
    reason: str
    at: str
    """ISO 8601, UTC."""
    counts: bool
    """Whether it is the one that counts, which the others are outranked by."""


class HomeReader:
    """Reads one home; a context manager. Not for use from several threads at once.

    Every method raises HoustonError where the home cannot be read, or a rollout is not there. A
    rollout may be named by its id or by a unique beginning or ending of it; empty means all.
    """

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        """home: its folder; None: as for any command, by HOUSTON_HOME and houston.toml."""
        named = os.fspath(home) if home is not None else None
        self.home: Home = load_configuration(named, None).home
        self._reader = Reader(self.home).open()

    def __enter__(self) -> "HomeReader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the files; they are opened again if something else is read."""
        self._reader.close()

    def __repr__(self) -> str:
        return f"<home {self.home.path}>"

    def rollout(self, name: str) -> RolloutRow:
        """One rollout."""
        row: RolloutRow = self._reader.run(rollout_queries.find_rollout(name))
        return row

    def rollouts(self, task: str = "", state: str = "") -> Iterator[RolloutRow]:
        """Rollouts, of one task or in one state if asked."""
        states = get_args(RolloutState)
        if state and state not in states:
            raise UsageError(
                f"There is no state {state!r}; there are: {', '.join(states)}.",
                next=did_you_mean(state, states),
            )
        return self._rollouts(task, state)

    def _rollouts(self, task: str, state: str) -> Iterator[RolloutRow]:
        yield from self._reader.run(rollout_queries.list_rollouts(task, state))

    def steps(self, rollout: str, first: int = 1, last: int = OPEN_END) -> Iterator[StepRecord]:
        """Steps of a rollout with thought, calls, results and the guidance that was heard.

        first, last: both included. The newest may still be open: its observation is None then.
        """
        for page, _ in self._pages(rollout, first, last):
            yield from page

    def verdicts(self, rollout: str = "") -> Iterator[StepVerdict]:
        """What rules, judges and people say of steps; of each step, what counts comes first."""
        for name in self._names(rollout):
            by_step = self._reader.run(annotation_queries.read_verdicts_with_reasons(name))
            for step in sorted(by_step):
                for place, row in enumerate(by_step[step]):
                    yield StepVerdict(
                        name, row.step, row.attempt, row.source, row.verdict, row.by,
                        row.reason, iso_time(row.at), counts=not place,
                    )  # fmt: skip

    def guidance(self, rollout: str = "") -> Iterator[Guidance]:
        """What people said, with the step at which it was heard."""
        for name in self._names(rollout):
            yield from self._reader.run(annotation_queries.list_guidance(name))

    def policies(self) -> Iterator[PolicyRow]:
        """What was trained or imported."""
        yield from self._reader.run(policy_queries.list_policies())

    def rows(self, rollout: str = "", *, messages: bool = False, **options: Any) -> Iterator[Any]:
        """Training rows as `houston export --rules stored` makes them: `TokenRow`, or `ChatRow`.

        A step that branches share is trained in one of their rows. What rules said when they ran
        last counts; they are not run. messages: rows of messages, without a tokenizer. options:
        fields of `houston_daemon.training.rows.training_row.RowOptions`. Raises HoustonError also
        for an erased ledger, and for a dialect or tokenizer that is not known.
        """
        # By name, as the table of commands has its modules: shared imports neither tree.
        rooms = "houston_daemon.training.rows"
        builder = importlib.import_module(f"{rooms}.row_builder")
        shared_steps = importlib.import_module(f"{rooms}.shared_steps")
        row_options = importlib.import_module(f"{rooms}.training_row").RowOptions(**options)
        build = builder.build_chat_rows if messages else builder.build_token_rows
        names = self._names(rollout)
        shared = shared_steps.read_shared_steps(self._reader, names)
        for name in names:
            yield from build(self._reader, name, row_options, shared)

    def frame(self, what: str, rollout: str = "", **selection: Any) -> "pandas.DataFrame":
        """A table of `rollouts`, `steps`, `verdicts`, `guidance`, `policies` or `rows`.

        Columns are the keys of `houston rollout list`, `steps` and `guidance` with `--json`, and
        the fields of the other records; times are UTC. rollout, selection: as for the method of
        that name; steps without a rollout are those of all. Raises HoustonError where pandas is not
        installed.
        """
        lines = self._lines(what)
        try:
            import pandas
        except ImportError:
            raise HoustonError(
                "Frames need pandas, which is not installed.",
                f"Nothing was read; .{what}() gives the same as records.",
                "pip install 'houston-agents[notebook]'",
            ) from None
        selection |= {"rollout": rollout} if rollout else {}
        records = list(lines(**selection))
        frame = pandas.DataFrame.from_records(
            records, columns=None if records else COLUMNS[what].split()
        )
        for column in SCORE_COLUMNS & set(frame.columns):
            frame[column] = pandas.to_numeric(frame[column])
        if not records and "counts" in frame:
            frame["counts"] = frame["counts"].astype(bool)  # what selects rows
        for column in TIME_COLUMNS & set(frame.columns):
            frame[column] = pandas.to_datetime(frame[column], utc=True, format="ISO8601")
        return frame

    def _lines(self, what: str) -> Callable[..., Iterator[JsonDict]]:
        """The method that gives a table's lines; raises HoustonError for a name that is none."""
        tables: dict[str, Callable[..., Iterator[JsonDict]]] = {
            "rollouts": lambda **which: map(json_views.rollout_json, self.rollouts(**which)),
            "steps": self._step_lines,
            "verdicts": lambda **which: (verdict._asdict() for verdict in self.verdicts(**which)),
            "guidance": lambda **which: map(json_views.guidance_json, self.guidance(**which)),
            "policies": lambda **which: map(_policy_line, self.policies(**which)),
            "rows": lambda **which: map(_row_line, self.rows(**which)),
        }
        if what in tables:
            return tables[what]
        raise UsageError(f"There is no table {what!r}; there are: {', '.join(tables)}.")

    def _step_lines(
        self, rollout: str = "", first: int = 1, last: int = OPEN_END
    ) -> Iterator[JsonDict]:
        for name in self._names(rollout):
            for page, (low, high) in self._pages(name, first, last):
                verdicts, rewards = self._reader.run(_read_judgements(name, low, high))
                for record in page:
                    key = (record.step, record.attempt)
                    yield step_json.step_json(name, record, verdicts.get(key), rewards.get(key))

    def _names(self, rollout: str) -> list[str]:
        """The whole id of one rollout, or those of all, in the order in which they were started."""
        if rollout:
            return [self._reader.run(rollout_queries.resolve_rollout_id(rollout))]
        every = sorted(self.rollouts(), key=lambda row: (row.created_at, row.id))
        return [row.id for row in every]

    def _pages(
        self, rollout: str, first: int, last: int
    ) -> Iterator[tuple[list[StepRecord], tuple[int, int]]]:
        """Steps, some in each read, each time with the range that was read."""
        name = self._reader.run(rollout_queries.resolve_rollout_id(rollout))
        while first <= last:
            end = min(last, first + STEPS_PER_READ - 1)
            page, newest = self._reader.run(_read_page(name, first, end))
            yield page, (first, end)
            if end >= newest:
                return
            first = end + 1


def _read_page(rollout: str, first: int, last: int) -> ReadPlan[tuple[list[StepRecord], int]]:
    """Some steps with the other attempts at them and with what repairs set aside; the newest."""
    records = yield from step_queries.read_steps_with_attempts(rollout, first, last)
    marked = yield from step_queries.mark_quarantined_steps(rollout, records, first, last)
    newest = yield from step_queries.find_last_step(rollout)
    return marked, newest


def _read_judgements(rollout: str, first: int, last: int) -> ReadPlan[tuple[Any, Any]]:
    """Verdicts that count, and process rewards, by step and attempt."""
    verdicts = yield from annotation_queries.list_verdicts(rollout, first, last)
    rewards = yield from process_reward_queries.list_process_rewards(rollout, first, last)
    return annotation_queries.effective_verdicts(verdicts), rewards


def _policy_line(policy: PolicyRow) -> JsonDict:
    """A policy as a line of a table."""
    return msgspec.structs.asdict(policy) | {"created_at": iso_time(policy.created_at)}


def _row_line(row: Any) -> JsonDict:
    """A training row as a line of a table; rows of ids also with their ids and weights."""
    line = {name: getattr(row, name) for name in ("id", "kind", "rollout", "task", "group")}
    line |= {"context": row.context, "provenance": row.provenance, "trained": row.trained}
    if not hasattr(row, "token_ids"):
        return line | {"messages": [message.message for message in row.messages]}
    return line | {
        "source": row.source,
        "sampled": row.sampled,
        "tokens": len(row.token_ids),
        "token_ids": list(row.token_ids),
        "weights": list(row.weights()),
    }
