"""The page that Prometheus reads: names, units, help and types of every figure.

Counters called `…_total` come from the database and survive restarts, except where the help says
`since the daemon's start`: those begin at 0 with it, as Prometheus expects of a restarted process.
"""

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from houston_daemon.recorder.upkeep.backup import age_seconds
from houston_daemon.service.metrics_totals import LATENCY_BUCKETS, Totals
from houston_shared import training_progress
from houston_shared.home import Home
from houston_shared.records import TRANSITIONS
from houston_shared.wire_status import Status

START = "since the daemon's start"
Labels = Mapping[str, str]
Value = float | Mapping[str, float]


def page(status: Status | None, totals: Totals, home: Home) -> str:
    """The whole text; status: None when the recorder did not answer."""
    return "".join(
        [
            *_store(totals),
            *_guidance(totals),
            *_files(home),
            *(_running(status) if status else ()),
            *(_training(home, status.training) if status else ()),
        ]
    ) + _figure("recorder_up", "gauge", "Whether the recorder answers.", float(status is not None))


def _store(totals: Totals) -> Iterator[str]:
    states: dict[str, float] = {
        state: float(totals.rollouts.get(state, 0)) for state in TRANSITIONS
    }
    yield _figure("rollouts", "gauge", "Rollouts by state.", states, "state")
    paused = _floats(totals.paused)
    yield _figure("rollouts_paused", "gauge", "Paused rollouts by who paused them.", paused, "by")
    yield _figure("steps_total", "counter", "Closed steps of all rollouts.", totals.steps)
    signals = _floats(totals.attention)
    yield _figure("attention_total", "counter", "Closed steps by signal.", signals, "signal")
    yield _figure("events_total", "counter", "Events of the journal, all on disk.", totals.events)
    drift, by_engine = _floats(totals.drift), _floats(totals.samples)
    yield _figure("samples_total", "counter", "Samples by engine.", by_engine, "engine")
    yield _figure("drift_total", "counter", "Samples by drift class.", drift, "drift")
    prompts, cached = totals.prompt_tokens, totals.cached_tokens
    yield _figure(
        "prompt_tokens_total", "counter", "Prompt tokens where the cached part is known.", prompts
    )
    yield _figure("cached_tokens_total", "counter", "Of them, from the prefix cache.", cached)
    yield _figure(
        "sampled_tokens_total", "counter", "Tokens sampled by token engines.", totals.sampled_tokens
    )
    yield _usage(totals)
    ratio = cached / prompts if prompts else 0.0
    yield _figure("prefix_hit_ratio", "gauge", "Cached tokens by prompt tokens, ever.", ratio)


def _usage(totals: Totals) -> str:
    lines = _head("usage_tokens_total", "counter", "Tokens by engine and kind, as engines say.")
    for (engine, kind), count in sorted(totals.usage.items()):
        lines += _line("usage_tokens_total", {"engine": engine, "kind": kind}, float(count))
    return lines


def _training(home: Home, runs: Mapping[str, str]) -> Iterator[str]:
    """Runs that have not ended, as their folders say it."""
    read = {run: training_progress.read(home, run) for run in runs}
    there = {run: one for run, one in read.items() if one is not None}
    steps = {run: float(one.step) for run, one in there.items()}
    yield _figure("training_step", "gauge", "Steps of a training run so far.", steps, "run")
    of = {run: float(one.steps) for run, one in there.items()}
    yield _figure("training_steps", "gauge", "Steps that it has in all.", of, "run")
    loss = {run: one.loss for run, one in there.items() if one.loss is not None}
    yield _figure("training_loss", "gauge", "Its loss at the last step, nats.", loss, "run")
    speed = {run: one.tokens_per_second for run, one in there.items() if one.tokens_per_second}
    yield _figure("training_tokens_per_second", "gauge", "Its recent speed.", speed, "run")


def _guidance(totals: Totals) -> Iterator[str]:
    queued = totals.guidance.get("queued", 0)
    yield _figure("guidance_waiting", "gauge", "Messages queued and not yet delivered.", queued)
    ever, heard = totals.guidance_ever, totals.guidance.get("delivered", 0)
    yield _figure("guidance_queued_total", "counter", "Messages ever queued.", ever)
    yield _figure("guidance_delivered_total", "counter", "Messages delivered.", heard)
    yield _histogram(
        "guidance_latency_seconds",
        "From a message's queueing to its delivery in an observation.",
        totals,
    )


def _files(home: Home) -> Iterator[str]:
    yield _figure("wal_bytes", "gauge", "Size of the database's log.", _size(home.database))
    free = shutil.disk_usage(home.path).free
    yield _figure("disk_free_bytes", "gauge", "Free space where the home lies.", free)
    age = age_seconds(home)
    if age is not None:
        yield _figure("backup_age_seconds", "gauge", "Since the newest backup.", age)


def _running(status: Status) -> Iterator[str]:
    info = {"version": status.version, "home": status.home}
    yield _figure("build_info", "gauge", "Version and home.", 1.0, labels=info)
    yield _figure("uptime_seconds", "gauge", "Since the daemon's start.", status.uptime)
    yield _figure("epoch", "gauge", "Starts of a daemon on this home.", status.epoch)
    yield _figure(
        "acked_messages_total", "counter", f"Messages of workers answered, {START}.", status.acked
    )
    ack, commit = status.ack_p99_ms / 1e3, status.commit_p99_ms / 1e3
    yield _figure("ack_p99_seconds", "gauge", "From receipt to answer, recent messages.", ack)
    yield _figure("commit_p99_seconds", "gauge", "Commits, recent ones.", commit)
    yield _figure("queue", "gauge", "Messages that wait for the writer.", status.queue)
    yield _figure("workers", "gauge", "Living workers.", status.workers)
    yield _figure("consoles", "gauge", "Listeners of the live feed.", status.consoles)
    lag = status.search_lag
    yield _figure("search_lag_events", "gauge", "Events that the search has not seen.", lag)
    up = {name: float(state == "ready") for name, state in status.engines.items()}
    active = dict.fromkeys(status.policies, 1.0)
    yield _figure("policy_active", "gauge", "Engines with a policy of ours.", active, "engine")
    yield _figure("engine_up", "gauge", "Whether an engine answers.", up, "engine")
    restarts = _floats(status.restarts)
    yield _figure("restarts_total", "counter", f"Started again, {START}.", restarts, "part")
    bad = float("backup" in status.troubles)
    yield _figure("backup_trouble", "gauge", "Whether one failed, rotted, or is late.", bad)
    yield _figure("troubles", "gauge", "Troubles that `daemon status` names.", len(status.troubles))


def _figure(
    name: str,
    kind: Literal["counter", "gauge"],
    text: str,
    value: Value,
    by: str = "",
    labels: Labels | None = None,
) -> str:
    """One figure; by: the label whose values are the keys of `value`."""
    lines = _head(name, kind, text)
    each = value.items() if isinstance(value, Mapping) else [("", value)]
    for key, number in each:
        lines += _line(name, {**(labels or {}), **({by: key} if by else {})}, number)
    return lines


def _histogram(name: str, text: str, totals: Totals) -> str:
    lines = _head(name, "histogram", text)
    below = 0
    for top in LATENCY_BUCKETS:
        below += totals.latencies.get(top, 0)
        lines += _line(f"{name}_bucket", {"le": str(top)}, below)
    lines += _line(f"{name}_bucket", {"le": "+Inf"}, totals.latency_count)
    lines += _line(f"{name}_sum", {}, totals.latency_sum)
    return lines + _line(f"{name}_count", {}, totals.latency_count)


def _head(name: str, kind: str, text: str) -> str:
    return f"# HELP houston_{name} {text}\n# TYPE houston_{name} {kind}\n"


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
    return f"houston_{name}{f'{{{inside}}}' if inside else ''} {value!r}\n"


def _escaped(text: str) -> str:
    """A label's value, as the text format wants it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _floats(counts: Mapping[str, int]) -> dict[str, float]:
    return {key: float(count) for key, count in counts.items()}


def _size(database: Path) -> int:
    """Bytes of the WAL; none after a clean stop."""
    try:
        return database.with_name(database.name + "-wal").stat().st_size
    except FileNotFoundError:
        return 0
