"""Metrics of the daemon in Prometheus' text format: a file, an HTTP endpoint, or both.

A thread of its own gathers them once per interval and keeps the page; the endpoint hands that out
and asks nobody, so neither a slow reader nor a full disk reaches the supervisor's loop. Counters
called `…_total` come from the database and survive restarts, except where the help says `since
the daemon's start`; samples and steps are read only as far as they are new. When the recorder
does not answer, `houston_recorder_up` is 0 and the figures of the database go on. To add a
metric, add a `_metric` line to one of the sections.
"""

import contextlib
import http.server
import os
import shutil
import socket
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Literal

from houston_daemon.maintenance.home_backup import measure_backup_age
from houston_daemon.recorder.recorder_handle import RecorderHandle
from houston_daemon.service.daemon_log import LOGGER
from houston_shared import policy_and_run_files
from houston_shared.config import LoadedConfiguration
from houston_shared.control_messages import Status
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home
from houston_shared.records import STATE_TRANSITIONS

SAMPLES_PER_READ = 20_000
"""Rows of samples read at a time."""
LATENCY_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 14_400)
"""Seconds from a message's queueing to its delivery; a step may take an hour."""


TOKEN_KINDS = ("prompt", "cached", "completion", "reasoning")
"""Kinds of tokens that endpoints count."""


class DatabaseTotals:
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
            (self._seen, SAMPLES_PER_READ),
        ).fetchall()
        for seq, drift, engine, prompt, cached, sampled, *answer in rows:
            self._seen = seq
            self.drift[drift] += 1
            self.samples[engine] += 1
            self.sampled_tokens += sampled or 0
            for kind, count in zip(TOKEN_KINDS, (prompt, cached, *answer), strict=True):
                if count is not None:
                    self.usage[engine, kind] += count
            if prompt is not None and cached is not None:
                self.prompt_tokens += prompt
                self.cached_tokens += cached
        return len(rows) == SAMPLES_PER_READ

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


SINCE_START = "since the daemon's start"
MetricLabels = Mapping[str, str]
MetricValue = float | Mapping[str, float]


def render_metrics(status: Status | None, totals: DatabaseTotals, home: Home) -> str:
    """The whole text; status: None when the recorder did not answer."""
    return "".join(
        [
            *_store_metrics(totals),
            *_guidance_metrics(totals),
            *_disk_metrics(home),
            *(_daemon_metrics(status) if status else ()),
            *(_training_metrics(home, status.training) if status else ()),
        ]
    ) + _metric("recorder_up", "gauge", "Whether the recorder answers.", float(status is not None))


def _store_metrics(totals: DatabaseTotals) -> Iterator[str]:
    states: dict[str, float] = {
        state: float(totals.rollouts.get(state, 0)) for state in STATE_TRANSITIONS
    }
    yield _metric("rollouts", "gauge", "Rollouts by state.", states, "state")
    paused = _to_floats(totals.paused)
    yield _metric("rollouts_paused", "gauge", "Paused rollouts by who paused them.", paused, "by")
    yield _metric("steps_total", "counter", "Closed steps of all rollouts.", totals.steps)
    signals = _to_floats(totals.attention)
    yield _metric("attention_total", "counter", "Closed steps by signal.", signals, "signal")
    yield _metric("events_total", "counter", "Events of the journal, all on disk.", totals.events)
    drift, by_engine = _to_floats(totals.drift), _to_floats(totals.samples)
    yield _metric("samples_total", "counter", "Samples by engine.", by_engine, "engine")
    yield _metric("drift_total", "counter", "Samples by drift class.", drift, "drift")
    prompts, cached = totals.prompt_tokens, totals.cached_tokens
    yield _metric(
        "prompt_tokens_total", "counter", "Prompt tokens where the cached part is known.", prompts
    )
    yield _metric("cached_tokens_total", "counter", "Of them, from the prefix cache.", cached)
    yield _metric(
        "sampled_tokens_total", "counter", "Tokens sampled by token engines.", totals.sampled_tokens
    )
    yield _usage_metric(totals)
    ratio = cached / prompts if prompts else 0.0
    yield _metric("prefix_hit_ratio", "gauge", "Cached tokens by prompt tokens, ever.", ratio)


def _usage_metric(totals: DatabaseTotals) -> str:
    lines = _metric_header(
        "usage_tokens_total", "counter", "Tokens by engine and kind, as engines say."
    )
    for (engine, kind), count in sorted(totals.usage.items()):
        lines += _sample_line("usage_tokens_total", {"engine": engine, "kind": kind}, float(count))
    return lines


def _training_metrics(home: Home, runs: Mapping[str, str]) -> Iterator[str]:
    """Runs that have not ended, as their folders say it."""
    read = {run: policy_and_run_files.read_training_progress(home, run) for run in runs}
    there = {run: one for run, one in read.items() if one is not None}
    steps = {run: float(one.step) for run, one in there.items()}
    yield _metric("training_step", "gauge", "Steps of a training run so far.", steps, "run")
    of = {run: float(one.steps) for run, one in there.items()}
    yield _metric("training_steps", "gauge", "Steps that it has in all.", of, "run")
    loss = {run: one.loss for run, one in there.items() if one.loss is not None}
    yield _metric("training_loss", "gauge", "Its loss at the last step, nats.", loss, "run")
    speed = {run: one.tokens_per_second for run, one in there.items() if one.tokens_per_second}
    yield _metric("training_tokens_per_second", "gauge", "Its recent speed.", speed, "run")


def _guidance_metrics(totals: DatabaseTotals) -> Iterator[str]:
    queued = totals.guidance.get("queued", 0)
    yield _metric("guidance_waiting", "gauge", "Messages queued and not yet delivered.", queued)
    ever, heard = totals.guidance_ever, totals.guidance.get("delivered", 0)
    yield _metric("guidance_queued_total", "counter", "Messages ever queued.", ever)
    yield _metric("guidance_delivered_total", "counter", "Messages delivered.", heard)
    yield _latency_histogram(
        "guidance_latency_seconds",
        "From a message's queueing to its delivery in an observation.",
        totals,
    )


def _disk_metrics(home: Home) -> Iterator[str]:
    yield _metric("wal_bytes", "gauge", "Size of the database's log.", _wal_bytes(home.database))
    free = shutil.disk_usage(home.path).free
    yield _metric("disk_free_bytes", "gauge", "Free space where the home lies.", free)
    age = measure_backup_age(home)
    if age is not None:
        yield _metric("backup_age_seconds", "gauge", "Since the newest backup.", age)


def _daemon_metrics(status: Status) -> Iterator[str]:
    info = {"version": status.version, "home": status.home}
    yield _metric("build_info", "gauge", "Version and home.", 1.0, labels=info)
    yield _metric("uptime_seconds", "gauge", "Since the daemon's start.", status.uptime)
    yield _metric("epoch", "gauge", "Starts of a daemon on this home.", status.epoch)
    yield _metric(
        "acked_messages_total",
        "counter",
        f"Messages of workers answered, {SINCE_START}.",
        status.acked,
    )
    ack, commit = status.ack_p99_ms / 1e3, status.commit_p99_ms / 1e3
    yield _metric("ack_p99_seconds", "gauge", "From receipt to answer, recent messages.", ack)
    yield _metric("commit_p99_seconds", "gauge", "Commits, recent ones.", commit)
    yield _metric("queue", "gauge", "Messages that wait for the writer.", status.queue)
    yield _metric("workers", "gauge", "Living workers.", status.workers)
    yield _metric("consoles", "gauge", "Listeners of the live feed.", status.consoles)
    lag = status.search_lag
    yield _metric("search_lag_events", "gauge", "Events that the search has not seen.", lag)
    up = {name: float(state == "ready") for name, state in status.engines.items()}
    active = dict.fromkeys(status.policies, 1.0)
    yield _metric("policy_active", "gauge", "Engines with a policy of ours.", active, "engine")
    yield _metric("engine_up", "gauge", "Whether an engine answers.", up, "engine")
    restarts = _to_floats(status.restarts)
    yield _metric("restarts_total", "counter", f"Started again, {SINCE_START}.", restarts, "part")
    bad = float("backup" in status.troubles)
    yield _metric("backup_trouble", "gauge", "Whether one failed, rotted, or is late.", bad)
    yield _metric("troubles", "gauge", "Troubles that `daemon status` names.", len(status.troubles))


def _metric(
    name: str,
    kind: Literal["counter", "gauge"],
    text: str,
    value: MetricValue,
    by: str = "",
    labels: MetricLabels | None = None,
) -> str:
    """One figure; by: the label whose values are the keys of `value`."""
    lines = _metric_header(name, kind, text)
    each = value.items() if isinstance(value, Mapping) else [("", value)]
    for key, number in each:
        lines += _sample_line(name, {**(labels or {}), **({by: key} if by else {})}, number)
    return lines


def _latency_histogram(name: str, text: str, totals: DatabaseTotals) -> str:
    lines = _metric_header(name, "histogram", text)
    below = 0
    for top in LATENCY_BUCKETS:
        below += totals.latencies.get(top, 0)
        lines += _sample_line(f"{name}_bucket", {"le": str(top)}, below)
    lines += _sample_line(f"{name}_bucket", {"le": "+Inf"}, totals.latency_count)
    lines += _sample_line(f"{name}_sum", {}, totals.latency_sum)
    return lines + _sample_line(f"{name}_count", {}, totals.latency_count)


def _metric_header(name: str, kind: str, text: str) -> str:
    return f"# HELP houston_{name} {text}\n# TYPE houston_{name} {kind}\n"


def _sample_line(name: str, labels: MetricLabels, value: float) -> str:
    inside = ",".join(f'{key}="{_escape_label(text)}"' for key, text in labels.items())
    return f"houston_{name}{f'{{{inside}}}' if inside else ''} {value!r}\n"


def _escape_label(text: str) -> str:
    """A label's value, as the text format wants it."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _to_floats(counts: Mapping[str, int]) -> dict[str, float]:
    return {key: float(count) for key, count in counts.items()}


def _wal_bytes(database: Path) -> int:
    """Bytes of the WAL; none after a clean stop."""
    try:
        return database.with_name(database.name + "-wal").stat().st_size
    except FileNotFoundError:
        return 0


METRICS_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SERVER_POLL_SECONDS = 0.5
"""How long the address may be held after the end."""
METRICS_PATIENCE_SECONDS = 2.0
"""How long the recorder may take to say how it stands, and a reader to send its request."""


class MetricsExporter:
    """Puts the page together, again and again; `text` is the newest."""

    def __init__(self, loaded: LoadedConfiguration) -> None:
        """Take the address; nothing runs yet.

        Raises ConfigurationError when it cannot be had, or when the file is something else.
        """
        settings = loaded.config.metrics
        self.text = b""
        self._home = loaded.home
        self._seconds = settings.seconds
        self._file = _metrics_file(loaded.home, settings.file) if settings.file else None
        self._totals = DatabaseTotals(loaded.home.database)
        self._problem = ""
        self._ended = threading.Event()
        self._server = (
            _open_server(settings.listen, _request_handler(self)) if settings.listen else None
        )

    def start(self, recorder: RecorderHandle) -> None:
        """Begin, if the configuration asks for anything."""
        self._recorder = recorder
        if self._server is not None:
            _start_thread("houston-metrics-http", partial(self._serve, self._server))
        if self._server is not None or self._file is not None:
            _start_thread("houston-metrics", self._run)

    def stop(self) -> None:
        """Let the address go."""
        self._ended.set()
        if self._server is not None:
            self._server.server_close()

    def _serve(self, server: http.server.HTTPServer) -> None:
        """Until the end; `serve_forever` would turn without rest once its socket is closed."""
        server.timeout = SERVER_POLL_SECONDS
        with contextlib.suppress(ValueError):  # closed between two requests
            while not self._ended.is_set():
                server.handle_request()

    def _run(self) -> None:
        while True:
            self._gather()
            if self._ended.wait(self._seconds):
                return

    def _gather(self) -> None:
        try:
            self._totals.read()
            self.text = render_metrics(self._status(), self._totals, self._home).encode()
            if self._file is not None:
                _replace_file(self._file, self.text)
        except (OSError, sqlite3.Error) as problem:
            if str(problem) != self._problem:  # a full disk: said once, tried again
                LOGGER.warning("figures could not be gathered: %s", problem)
            self._problem = str(problem)
        else:
            self._problem = ""

    def _status(self) -> Status | None:
        try:
            return self._recorder.status(METRICS_PATIENCE_SECONDS)
        except (HoustonError, TimeoutError):
            return None


def _metrics_file(home: Home, name: str) -> Path:
    """The file, which is rewritten for ever: raises ConfigurationError where that would destroy
    anything. In a home only `*.prom` is nobody else's."""
    file = home.path / name
    inside = file.resolve().is_relative_to(home.path.resolve())
    if inside and file.suffix != ".prom":
        why = "what lies in the home is the daemon's, but for files that end in .prom"
    elif os.path.lexists(file) and (file.is_symlink() or not file.is_file()):
        why = "it is there, and no regular file"
    else:
        return file
    raise ConfigurationError(
        f"`metrics.file` = {name!r} cannot be written: {why}.",
        "The daemon was not started.",
        "Name a file of its own such as /var/lib/node_exporter/houston.prom.",
    )


def _replace_file(file: Path, text: bytes) -> None:
    """Replace the file, so that a reader never sees half of it."""
    beside = file.with_name(file.name + ".new")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    with os.fdopen(fd, "wb") as out:
        out.write(text)
    beside.replace(file)


def _start_thread(name: str, run: Callable[[], None]) -> None:
    threading.Thread(target=run, name=name, daemon=True).start()


def _open_server(
    address: str, handler: type[http.server.BaseHTTPRequestHandler]
) -> http.server.HTTPServer:
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        return (_Ipv6Server if ":" in host else http.server.HTTPServer)((host, int(port)), handler)
    except (OSError, ValueError, OverflowError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is no HOST:PORT"
        raise ConfigurationError(
            f"`metrics.listen` = {address!r} cannot be listened at: {why}.",
            "The daemon was not started.",
            "Name a free address such as 127.0.0.1:9464.",
        ) from None


class _Ipv6Server(http.server.HTTPServer):
    address_family = socket.AF_INET6


def _request_handler(figures: MetricsExporter) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = METRICS_PATIENCE_SECONDS  # one reader at a time: who says nothing is cut off

        def do_GET(self) -> None:
            """The newest page."""
            found = self.path.partition("?")[0] in ("/metrics", "/")
            text = figures.text if found else b"The figures are at /metrics.\n"
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", METRICS_CONTENT_TYPE)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """A line for every scrape would fill the log."""

    return Handler
