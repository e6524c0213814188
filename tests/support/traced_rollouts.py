"""Rollouts as rules and judge see them, written as lists of calls: the workstation's results with
the fields that it gives them.
"""

import tomllib
from typing import Any

import msgspec

from houston_daemon.review.rollout_trace import RolloutTrace
from houston_shared.records import (
    DeliveredGuidance,
    FileChange,
    ObservationBody,
    StepRecord,
    ToolCall,
    ToolResult,
)
from houston_shared.task import Task
from houston_shared.toml_file import convert_toml
from tests.support.written_home import sample

EVALUATED = '[evaluate]\ncommand = "python3 evaluate.py"\nrequired = ["answer.json"]\n'
Done = dict[str, Any]
"""A call and what it returned."""


def call(
    name: str, kind: str = "", text: str = "", ok: bool = True, refused: str = "", **fields: Any
) -> Done:
    """A call whose arguments are the fields that begin with `_`; refused: why it cannot be run."""
    arguments = {key[1:]: value for key, value in fields.items() if key.startswith("_")}
    typed = {key: value for key, value in fields.items() if not key.startswith("_")}
    return {
        "call": ToolCall(id="1.0", name=name, arguments=arguments, error=refused),
        "kind": kind or name,
        "success": ok,
        "text": text,
        "fields": typed,
    }


def run(command: str, text: str = "", code: int = 0, **more: Any) -> Done:
    """A command that has ended."""
    session = more.pop("session", "main")
    problem = {"error": f"exit code {code}"} if code else {}
    return call(
        "run_command", "command", f"[session {session}: exit code {code} after 0.1 s]\n{text}",
        not code, _command=command, _session_id=session, session_id=session, running=False,
        exit_code=code, window=False, **problem, **more,
    )  # fmt: skip


def begin(command: str, text: str = "", **more: Any) -> Done:
    """A command that is left running."""
    session = more.pop("session", "main")
    return call(
        "run_command", "command", f"[session {session}: still running]\n{text}", _command=command,
        _session_id=session, session_id=session, running=True, exit_code=None, window=False, **more,
    )  # fmt: skip


def output(text: str = "", running: bool = True, code: int | None = None, **more: Any) -> Done:
    """A look at what a session shows."""
    session = more.pop("session", "main")
    return call(
        "get_session_output", "command", f"[session {session}]\n{text}", _session_id=session,
        session_id=session, running=running, exit_code=code, window=True, **more,
    )  # fmt: skip


def kill(session: str = "main") -> Done:
    return call("kill_session_processes", "killed", "sent SIGINT", _session_id=session,
                session_id=session, signal_used="SIGINT", running=False)  # fmt: skip


def listing(text: str, path: str = ".") -> Done:
    return call("list_files", "listing", text, path=path, _path=path)


def look(path: str = "a.py", text: str = "1\tx") -> Done:
    return call("open_file", "file", text, path=path, change="", _path=path)


def edit(path: str = "a.py", content: str = "y", start: int = 1, end: int = 1) -> Done:
    return call("edit_file", "file", "1\ty", path=path, change="edited", _path=path, _start=start,
                _end=end, _content=content)  # fmt: skip


def create(path: str, content: str = "x", change: str = "created") -> Done:
    return call("create_file", "file", "1\tx", path=path, change=change, _filename=path,
                _content=content)  # fmt: skip


def sleep(seconds: float = 600, running: list[str] | None = None) -> Done:
    return call("sleep", "sleep", "Slept.", asked=seconds, slept=seconds, ended_by="time",
                running=running, _sleep_time=seconds)  # fmt: skip


def score(value: float | None, state: str = "scored", error: str = "") -> Done:
    """An evaluation; one that gives no score is no error of the workspace unless it says so."""
    fields = {"error": error} if error else {}
    return call("eval", "eval", error or f"overall_score: {value}", value is not None, state=state,
                overall_score=value, counted=state == "scored", **fields)  # fmt: skip


def finish(ok: bool = True) -> Done:
    return call("finish", "finish", "Finished.", ok, finished=ok)


def think() -> Done:
    return call("think", text="Noted.", _thought="hm")


class Step:
    """Calls of one step, and what else is said of it."""

    def __init__(self, *calls: Done, **more: Any) -> None:
        """more: `said` (guidance that is joined to it), `changed` (files: yes, no, unknown),
        `malformed`, `reason` (why the sample ended), `added` (calls that the loop made)."""
        self.calls, self.more = calls, more

    def record(self, number: int) -> StepRecord:
        """As the journal has it."""
        more = self.more
        results = tuple(ToolResult(**call) for call in self.calls)
        own = results[: len(results) - more.get("added", 0)]
        body = sample(malformed=more.get("malformed", ""), calls=tuple(call.call for call in own))
        body = msgspec.structs.replace(body, finish_reason=more.get("reason", "stop"))
        changed = more.get("changed", _changes(self.calls))
        files = (FileChange(path="a", kind="changed", added=1, removed=1),) if changed else ()
        closed = ObservationBody(
            tail="", files=files, snapshot="" if changed is None else f"c{number}"
        )
        said = more.get("said")
        guidance = (DeliveredGuidance(id=f"g{number}", author="ada", text=said),) if said else ()
        return StepRecord(
            step=number, attempt=1, sample_seq=number, sample=body, intents=(), results=results,
            observation=closed, guidance=guidance, at="", active_seconds=float(number),
            inherited=more.get("inherited", ""),
        )  # fmt: skip


Steps = list[Step | tuple[Done, ...] | Done]


def _changes(calls: tuple[Done, ...]) -> bool:
    still = ("open_file", "list_files", "sleep", "eval", "finish", "think", "get_session_output")
    return any(call["call"].name not in still for call in calls)


def traced(steps: Steps, task: str = "", instructions: str = "Count.", **more: Any) -> RolloutTrace:
    """A rollout of these steps. task: TOML lines of its file; more: fields of `Trace`."""
    text = f'name = "probe"\ninstructions = "Count."\n{task}'
    records = []
    for number, item in enumerate(steps, 1):
        calls = item if isinstance(item, tuple) else (item,)
        step = item if isinstance(item, Step) else Step(*calls)
        records.append(step.record(number))
    fields = {"gpus": {}, "ended": True, **more}
    definition = convert_toml(tomllib.loads(text), Task, "a test")
    return RolloutTrace("r", definition, instructions, fields.pop("gpus"), tuple(records), **fields)
