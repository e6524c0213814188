"""Metrics of the daemon in Prometheus' text format: a file, an HTTP endpoint, or both.

A separate thread gathers them once per interval and keeps the page; the endpoint only returns that
page, so neither a slow reader nor a full disk delays the supervisor's loop. Counters called
`…_total` come from the database and survive restarts, except where the help says `since the
daemon's start`; only new samples and steps are read. When the recorder does not answer,
`houston_recorder_up` is 0 and the figures of the database continue. To add a metric, add a
`_metric` line to one of the sections. Imported only if `[metrics]` asks for it.
"""

import contextlib
import http.server
import os
import shutil
import socket
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate
from pathlib import Path

from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from houston_daemon.artifacts import store_owner
from houston_daemon.maintenance.durable_copy import open_read_only
from houston_daemon.maintenance.home_backup import measure_backup_age
from houston_daemon.recorder.recorder_handle import RecorderHandle
from houston_daemon.service.daemon_log import LOGGER
from houston_shared.atomic_file import write_atomically
from houston_shared.config import LoadedConfiguration
from houston_shared.control_messages import Status
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home
from houston_shared.policy_and_run_files import read_training_progress
from houston_shared.records import PURIFIED_ENGINE, STATE_TRANSITIONS
from houston_shared.store import attention_ranking
from houston_shared.store.attention_ranking import rank_rollouts
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import now_us

SAMPLES_PER_READ = 20_000
"""Rows of samples read at a time."""
LATENCY_BUCKETS = (1, 5, 15, 60, 300, 900, 3600, 14_400)
"""Seconds from a message's queueing to its delivery; a step may take an hour."""
NEEDS_SECONDS = 10.0
"""Between two readings of who needs a person; longer where one takes long."""
NEEDS_REST_PER_WORK = 100.0
TOKEN_KINDS = ("prompt", "cached", "completion", "reasoning")
"""Kinds of tokens that endpoints count."""


class DatabaseTotals:
    """Read from one database; belongs to one thread."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._newest_sample = 0
        """Sequence of the newest sample that is counted."""
        self.events = 0
        """Events of the journal."""
        self.steps = 0
        """Closed steps."""
        self.rollouts: dict[str, int] = {}
        self.paused: dict[str, int] = {}
        """Paused rollouts by the owner of the pause; `person` for all people."""
        self.guidance: dict[str, int] = {}
        """Messages by state."""
        self.latencies: dict[int, int] = {}
        """Delivered messages by the bucket that they fall into first; 0 for none of them."""
        self.latency_sum = 0.0
        self.drift: Counter[str] = Counter()
        """Samples by drift class."""
        self.samples: Counter[str] = Counter()
        """Samples by engine."""
        self.prompt_tokens = 0
        self.cached_tokens = 0
        """Of those prompts of which the engine said how much its cache held."""
        self.sampled_tokens = 0
        self.purified_steps = self.lookahead_samples = 0
        self.usage: Counter[tuple[str, str]] = Counter()
        """Tokens by engine and kind (prompt, cached, completion, reasoning), as engines say."""
        self.needing: Counter[str] = Counter()
        """Rollouts by the reason for which they need a person, some seconds old."""
        self._needs_reader = Reader(Home(database.parent))
        self._needs_due = 0.0
        """When reasons are read again, monotonic."""
        self.costs: dict[tuple[str, str], float] = {}
        """What samples cost by engine, and reviews by reviewer, each with its kind."""
        self.attention: Counter[str] = Counter()
        """Closed steps by signal."""
        self._counted_steps: dict[str, int] = {}
        """Rollout → the newest step whose signals are counted."""

    def read(self) -> None:
        """Bring everything up to date. Raises sqlite3.Error, HoustonError."""
        with contextlib.closing(open_read_only(self._database, seconds=2)) as reader:
            self._read_counts(reader)
            self._read_guidance(reader)
            while self._read_samples(reader):
                pass
            self._read_review_costs(reader)
            self._read_signals(reader)
        self._read_needs(time.monotonic())

    def _read_counts(self, reader: sqlite3.Connection) -> None:
        ((self.events, self.steps),) = reader.execute(
            "SELECT (SELECT coalesce(max(seq), 0) FROM events),"
            " (SELECT coalesce(sum(steps), 0) FROM rollouts)"
        )
        self.rollouts = dict(
            reader.execute("SELECT state, count(*) FROM rollouts GROUP BY state").fetchall()
        )
        self.paused = dict(
            reader.execute(
                "SELECT CASE WHEN paused_by LIKE 'person:%' THEN 'person' ELSE paused_by END,"
                " count(*) FROM rollouts WHERE state = 'paused' GROUP BY 1"
            ).fetchall()
        )

    def _read_guidance(self, reader: sqlite3.Connection) -> None:
        self.guidance = dict(
            reader.execute("SELECT state, count(*) FROM guidance GROUP BY state").fetchall()
        )
        buckets = " ".join(f"WHEN s <= {top} THEN {top}" for top in LATENCY_BUCKETS)
        rows = reader.execute(
            f"SELECT CASE {buckets} ELSE 0 END, count(*), sum(s) FROM (SELECT"
            " (delivered_at - queued_at) / 1e6 AS s FROM guidance WHERE state = 'delivered')"
            " GROUP BY 1"
        ).fetchall()
        self.latencies = {top: count for top, count, _ in rows}
        self.latency_sum = sum(seconds for _, _, seconds in rows)

    def _read_samples(self, reader: sqlite3.Connection) -> bool:
        """Count the next samples; whether there may be more."""
        rows = reader.execute(
            "SELECT seq, role, drift, engine, cost, prompt_tokens, cached_tokens, sampled_ids,"
            " completion_tokens, reasoning_tokens FROM samples WHERE seq > ? ORDER BY seq LIMIT ?",
            (self._newest_sample, SAMPLES_PER_READ),
        ).fetchall()
        for seq, role, drift, engine, cost, prompt, cached, sampled, *answer in rows:
            self._newest_sample = seq
            if engine == PURIFIED_ENGINE:
                self.purified_steps += 1
                continue  # no request to a model
            self.lookahead_samples += role == "lookahead"
            self.drift[drift] += 1
            self.samples[engine] += 1
            self.sampled_tokens += sampled or 0
            if cost is not None:
                key = ("samples", engine)
                self.costs[key] = self.costs.get(key, 0.0) + cost
            for kind, count in zip(TOKEN_KINDS, (prompt, cached, *answer), strict=True):
                if count is not None:
                    self.usage[engine, kind] += count
            if prompt is not None and cached is not None:
                self.prompt_tokens += prompt
                self.cached_tokens += cached
        return len(rows) == SAMPLES_PER_READ

    def _read_review_costs(self, reader: sqlite3.Connection) -> None:
        rows = reader.execute(
            "SELECT reviewer, sum(cost) FROM review_costs WHERE cost IS NOT NULL GROUP BY reviewer"
        )
        self.costs |= {("review", reviewer): cost for reviewer, cost in rows}

    def _read_signals(self, reader: sqlite3.Connection) -> None:
        """Count the signals of steps that closed since the last time."""
        for rollout, steps in reader.execute("SELECT id, steps FROM rollouts").fetchall():
            counted = self._counted_steps.get(rollout, 0)
            if steps <= counted:
                continue
            rows = reader.execute(
                "SELECT attention FROM steps WHERE rollout = ? AND step > ? AND step <= ?"
                " AND current = 1 AND attention <> ''",
                (rollout, counted, steps),
            )
            for (names,) in rows.fetchall():
                self.attention.update(names.split(","))
            self._counted_steps[rollout] = steps

    def _read_needs(self, now: float) -> None:
        """Weigh all rollouts, as consoles do; rarely, as that takes longer than all else here."""
        if now < self._needs_due:
            return
        plan = attention_ranking.read_rollout_overviews(bodies=False)
        needs = rank_rollouts(self._needs_reader.run(plan), now_us())
        self.needing = Counter(
            kind for need in needs for kind in {reason.kind for reason in need.reasons}
        )
        took = time.monotonic() - now
        self._needs_due = now + max(NEEDS_SECONDS, took * NEEDS_REST_PER_WORK)


SINCE_START = "since the daemon's start"


def render_metrics(
    status: Status | None, totals: DatabaseTotals, home: Home, store_url: str = ""
) -> bytes:
    """The whole page. status: None when the recorder did not answer; store_url: `artifacts.url`."""
    return generate_latest(_Page(status, totals, home, store_url))


class _Page(Collector):
    """The figures of one moment, as prometheus_client asks for them."""

    def __init__(
        self, status: Status | None, totals: DatabaseTotals, home: Home, store_url: str
    ) -> None:
        self._status = status
        self._totals = totals
        self._home = home
        self._store_url = store_url

    def collect(self) -> Iterator[Metric]:
        """All of them, in the order of the page."""
        yield from _store_metrics(self._totals)
        yield from _guidance_metrics(self._totals)
        yield from _disk_metrics(self._home)
        if self._store_url:
            copied = store_owner.read_copied(self._home, self._store_url)
            lag = self._totals.events - (copied.seq if copied else 0)
            words = "Events that the store of `[artifacts]` has not."
            yield _metric("artifacts_lag_events", words, max(0, lag))
        if self._status:
            yield from _daemon_metrics(self._status)
            yield from _training_metrics(self._home, self._status.training)
        yield _metric("recorder_up", "Whether the recorder answers.", self._status is not None)


def _store_metrics(totals: DatabaseTotals) -> Iterator[Metric]:
    states: dict[str, float] = {s: totals.rollouts.get(s, 0) for s in STATE_TRANSITIONS}
    yield _metric("rollouts", "Rollouts by state.", states, "state")
    yield _metric("rollouts_paused", "Paused rollouts by who paused them.", totals.paused, "by")
    words = f"Rollouts by the reason for which they need a person, {NEEDS_SECONDS:g} s old or so."
    yield _metric("rollouts_needing", words, totals.needing, "reason")
    yield _metric("steps_total", "Closed steps of all rollouts.", totals.steps)
    yield _metric("attention_total", "Closed steps by signal.", totals.attention, "signal")
    yield _metric("events_total", "Events of the journal, all on disk.", totals.events)
    yield _metric("samples_total", "Samples by engine.", totals.samples, "engine")
    yield _metric("drift_total", "Samples by drift class.", totals.drift, "drift")
    prompts, cached = totals.prompt_tokens, totals.cached_tokens
    yield _metric("prompt_tokens_total", "Prompt tokens where the cached part is known.", prompts)
    yield _metric("cached_tokens_total", "Of them, from the prefix cache.", cached)
    sampled = totals.sampled_tokens
    yield _metric("sampled_tokens_total", "Tokens sampled by token engines.", sampled)
    ahead, purified = totals.lookahead_samples, totals.purified_steps
    yield _metric("lookahead_samples_total", "Corrections of failed calls.", ahead)
    yield _metric("purified_steps_total", "Steps that a correction replaced.", purified)
    usage = _metric("usage_tokens_total", "Tokens by engine and kind, as engines say.", {})
    for (engine, kind), count in sorted(totals.usage.items()):
        usage.add_sample(f"{usage.name}_total", {"engine": engine, "kind": kind}, count)
    yield usage
    costs = _metric("cost_total", "What was paid by declared prices, by kind and engine.", {})
    for (kind, engine), cost in sorted(totals.costs.items()):
        costs.add_sample(f"{costs.name}_total", {"kind": kind, "engine": engine}, cost)
    yield costs
    ratio = cached / prompts if prompts else 0.0
    yield _metric("prefix_hit_ratio", "Cached tokens by prompt tokens, ever.", ratio)


def _guidance_metrics(totals: DatabaseTotals) -> Iterator[Metric]:
    queued, delivered = totals.guidance.get("queued", 0), totals.guidance.get("delivered", 0)
    yield _metric("guidance_waiting", "Messages queued and not yet delivered.", queued)
    yield _metric("guidance_queued_total", "Messages ever queued.", sum(totals.guidance.values()))
    yield _metric("guidance_delivered_total", "Messages delivered.", delivered)
    tops = [*map(str, LATENCY_BUCKETS), "+Inf"]
    counts = accumulate(totals.latencies.get(top, 0) for top in (*LATENCY_BUCKETS, 0))
    yield HistogramMetricFamily(
        "houston_guidance_latency_seconds",
        "From a message's queueing to its delivery in an observation.",
        list(zip(tops, counts, strict=True)),
        totals.latency_sum,
    )


def _disk_metrics(home: Home) -> Iterator[Metric]:
    yield _metric("wal_bytes", "Size of the database's log.", _wal_bytes(home.database))
    free = shutil.disk_usage(home.path).free
    yield _metric("disk_free_bytes", "Free space where the home lies.", free)
    age = measure_backup_age(home)
    if age is not None:
        yield _metric("backup_age_seconds", "Since the newest backup.", age)


def _daemon_metrics(status: Status) -> Iterator[Metric]:
    info = _metric("build_info", "Version and home.", {})
    info.add_sample(info.name, {"version": status.version, "home": status.home}, 1)
    yield info
    yield _metric("uptime_seconds", "Since the daemon's start.", status.uptime)
    yield _metric("epoch", "Starts of a daemon on this home.", status.epoch)
    acked = f"Messages of workers answered, {SINCE_START}."
    yield _metric("acked_messages_total", acked, status.acked)
    ack, commit = status.ack_p99_ms / 1e3, status.commit_p99_ms / 1e3
    yield _metric("ack_p99_seconds", "From receipt to answer, recent messages.", ack)
    yield _metric("commit_p99_seconds", "Commits, recent ones.", commit)
    yield _metric("queue", "Messages that wait for the writer.", status.queue)
    yield _metric("workers", "Living workers.", status.workers)
    yield _metric("consoles", "Listeners of the live feed.", status.consoles)
    lag = status.search_lag
    yield _metric("search_lag_events", "Events that the search has not seen.", lag)
    active = dict.fromkeys(status.policies, 1)
    yield _metric("policy_active", "Engines with a policy of ours.", active, "engine")
    up = {name: state == "ready" for name, state in status.engines.items()}
    yield _metric("engine_up", "Whether an engine answers.", up, "engine")
    yield from _replica_metrics(status)
    yield from _node_metrics(status)
    yield _metric("restarts_total", f"Started again, {SINCE_START}.", status.restarts, "part")
    bad = "backup" in status.troubles
    yield _metric("backup_trouble", "Whether one failed, rotted, or is late.", bad)
    yield _metric("troubles", "Troubles that `daemon status` names.", len(status.troubles))


def _replica_metrics(status: Status) -> Iterator[Metric]:
    """Servers of engines that have several."""
    ready = Metric("houston_replica_up", "Whether one of an engine's servers answers.", "gauge")
    rollouts = Metric("houston_replica_rollouts", "Rollouts that keep to it.", "gauge")
    requests = Metric("houston_replica_requests", "Samples that it works at.", "gauge")
    for engine, replicas in status.replicas.items():
        for replica in replicas:
            labels = {"engine": engine, "replica": replica.name}
            ready.add_sample(ready.name, labels, replica.state == "ready")
            rollouts.add_sample(rollouts.name, labels, replica.rollouts)
            requests.add_sample(requests.name, labels, replica.requests)
    yield from (metric for metric in (ready, rollouts, requests) if metric.samples)


def _node_metrics(status: Status) -> Iterator[Metric]:
    """Nodes of the cluster, and what runs there."""
    if not status.nodes:
        return
    names = {node.name: node for node in status.nodes}
    up = {name: float(node.alive) for name, node in names.items()}
    yield _metric("node_up", "Whether a node of the cluster lives.", up, "node")
    workers = {name: float(node.workers) for name, node in names.items()}
    yield _metric("node_workers", "Workers of this home on it.", workers, "node")
    rollouts = {name: float(len(node.rollouts)) for name, node in names.items()}
    yield _metric("node_rollouts", "Rollouts of this home on it.", rollouts, "node")
    waiting = len(status.unplaced)
    yield _metric("unplaced", "Places on nodes that are waited for.", waiting)


def _training_metrics(home: Home, runs: Mapping[str, str]) -> Iterator[Metric]:
    """Runs that have not ended, as their folders say it."""
    read = {run: read_training_progress(home, run) for run in runs}
    known_progress = {run: progress for run, progress in read.items() if progress is not None}
    steps = {run: progress.step for run, progress in known_progress.items()}
    yield _metric("training_step", "Steps of a training run so far.", steps, "run")
    all_steps = {run: progress.steps for run, progress in known_progress.items()}
    yield _metric("training_steps", "Steps that it has in all.", all_steps, "run")
    loss = {
        run: progress.loss for run, progress in known_progress.items() if progress.loss is not None
    }
    yield _metric("training_loss", "Its loss at the last step, nats.", loss, "run")
    speeds = {run: progress.tokens_per_second for run, progress in known_progress.items()}
    speed = {run: speed for run, speed in speeds.items() if speed}
    yield _metric("training_tokens_per_second", "Its recent speed.", speed, "run")


def _metric(name: str, text: str, value: float | Mapping[str, float], label: str = "") -> Metric:
    """A counter where the name ends in `_total`, else a gauge.

    label: the one whose values are the keys of `value`.
    """
    kind = "counter" if name.endswith("_total") else "gauge"
    metric = Metric(f"houston_{name.removesuffix('_total')}", text, kind)
    values = value if isinstance(value, Mapping) else {"": value}
    for key, number in values.items():
        metric.add_sample(f"houston_{name}", {label: key} if label else {}, number)
    return metric


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
    """Puts the page together, again and again; `page` is the newest."""

    def __init__(self, loaded: LoadedConfiguration) -> None:
        """Take the address; nothing runs yet.

        Raises ConfigurationError when it cannot be had, or when the file is something else.
        """
        settings = loaded.config.metrics
        self.page = b""
        self._home = loaded.home
        self._seconds = settings.seconds
        self._store_url = loaded.config.artifacts.url
        self._file = _metrics_file(loaded.home, settings.file) if settings.file else None
        self._totals = DatabaseTotals(loaded.home.database)
        self._problem = ""
        self._ended = threading.Event()
        self._server = (
            _open_server(settings.listen, _request_handler(self)) if settings.listen else None
        )

    def start(self, recorder: RecorderHandle) -> None:
        """Begin to gather, and to answer."""
        self._recorder = recorder
        if self._server is not None:
            _start_thread("houston-metrics-http", partial(self._serve, self._server))
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
            self.page = render_metrics(self._status(), self._totals, self._home, self._store_url)
            if self._file is not None:
                write_atomically(self._file, self.page, durable=False)
        except (OSError, sqlite3.Error, HoustonError) as problem:
            if str(problem) != self._problem:  # a full disk: said once, tried again
                LOGGER.warning("metrics could not be collected: %s", problem)
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
        reason = "in the home, only a file that ends in .prom is allowed"
    elif os.path.lexists(file) and (file.is_symlink() or not file.is_file()):
        reason = "it exists and is not a regular file"
    else:
        return file
    raise ConfigurationError(
        f"`metrics.file` = {name!r} cannot be written: {reason}.",
        "The daemon was not started.",
        "Name a separate file such as /var/lib/node_exporter/houston.prom.",
    )


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
        reason = problem.strerror if isinstance(problem, OSError) else "it is not HOST:PORT"
        raise ConfigurationError(
            f"`metrics.listen` = {address!r} cannot be used for listening: {reason}.",
            "The daemon was not started.",
            "Name a free address such as 127.0.0.1:9464.",
        ) from None


class _Ipv6Server(http.server.HTTPServer):
    address_family = socket.AF_INET6


def _request_handler(exporter: MetricsExporter) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = METRICS_PATIENCE_SECONDS  # one reader at a time: who says nothing is cut off

        def do_GET(self) -> None:
            """The newest page."""
            is_metrics_path = self.path.partition("?")[0] in ("/metrics", "/")
            text = exporter.page if is_metrics_path else b"The figures are at /metrics.\n"
            self.send_response(200 if is_metrics_path else 404)
            self.send_header("Content-Type", METRICS_CONTENT_TYPE)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """A line for every scrape would fill the log."""

    return Handler
