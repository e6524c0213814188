"""Figures for Prometheus: what another program's parser reads, and what a restart keeps."""

import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from houston_daemon.artifacts import store_owner
from houston_daemon.artifacts.store_owner import StoreNote
from houston_daemon.service.prometheus_metrics import (
    DatabaseTotals,
    MetricsExporter,
    render_metrics,
)
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import MetricsSettings
from houston_shared.control_messages import Status
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.records import ObservationBody
from tests.support.written_home import WrittenHome

HOSTILE = 'back\\slash "quote"\nline'


def status(home: str, **fields: Any) -> Status:
    return Status(
        pid=1,
        state="running",
        uptime=12.5,
        epoch=3,
        version="0.1.0",
        home=home,
        rollouts={},
        **fields,
    )


def read(text: bytes) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Sample name → labels → value, as Prometheus' own parser reads it."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(text.decode()):
        assert family.documentation, family.name
        assert family.type in ("counter", "gauge", "histogram"), family.name
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            found.setdefault(sample.name, {})[labels] = sample.value
    return found


@pytest.fixture
def written(tmp_path: Path) -> Iterator[WrittenHome]:
    home = WrittenHome(tmp_path / "home")
    yield home
    home.connection.close()


def guidance(home: WrittenHome, number: int, waited: float | None) -> None:
    """A message that waited so many seconds, or is queued still."""
    state = "queued" if waited is None else "delivered"
    home.connection.execute(
        "INSERT INTO guidance (id, number, rollout, author, verified, mode, state, text_seq,"
        " queued_at, delivered_at) VALUES (?, ?, 'r', 'ada', 1, 'next', ?, 1, 1000000, ?)",
        (f"g{number}", number, state, None if waited is None else int(1_000_000 + waited * 1e6)),
    )


def sample(
    home: WrittenHome,
    seq: int,
    drift: str,
    prompt: int | None,
    cached: int | None,
    completion: int | None = None,
    reasoning: int | None = None,
    cost: float | None = None,
) -> None:
    home.connection.execute("PRAGMA foreign_keys = OFF")
    home.connection.execute(
        "INSERT INTO samples (seq, rollout, step, attempt, role, kept, sampled_ids, prompt_tokens,"
        " cached_tokens, finish_reason, logprob_kind, engine, drift, completion_tokens,"
        " reasoning_tokens, cost)"
        " VALUES (?, 'r', 1, 1, 'policy', 0, 5, ?, ?, 'stop', 'none', ?, ?, ?, ?, ?)",
        (seq, prompt, cached, HOSTILE, drift, completion, reasoning, cost),
    )


def totals(home: WrittenHome) -> DatabaseTotals:
    found = DatabaseTotals(home.home.database)
    found.read()
    return found


def test_the_page_is_what_prometheus_reads(written: WrittenHome) -> None:
    for number, waited in enumerate((0.5, 4.0, 70.0, 99_999.0, None), start=1):
        guidance(written, number, waited)
    for seq, (drift, prompt, cached) in enumerate(
        [("clean", 100, 80), ("clean", 100, 90), ("forked", 100, None), ("stripped", None, None)], 1
    ):
        sample(written, seq, drift, prompt, cached)
    now = status(
        HOSTILE,
        acked=7,
        ack_p99_ms=5.0,
        engines={HOSTILE: "ready", "far": "down: gone"},
        restarts={"workers": 2, "engines": 0},
        troubles={"engine far": "gone"},
    )
    found = read(render_metrics(now, totals(written), written.home))
    one: tuple[tuple[str, str], ...] = ()
    assert found["houston_recorder_up"][one] == 1
    assert found["houston_acked_messages_total"][one] == 7
    assert found["houston_ack_p99_seconds"][one] == 0.005
    assert found["houston_guidance_queued_total"][one] == 5
    assert found["houston_guidance_delivered_total"][one] == 4
    assert found["houston_guidance_waiting"][one] == 1
    buckets = {
        dict(k)["le"]: v for k, v in found["houston_guidance_latency_seconds_bucket"].items()
    }
    assert (buckets["1"], buckets["5"], buckets["60"], buckets["300"]) == (1, 2, 2, 3)
    assert buckets["+Inf"] == found["houston_guidance_latency_seconds_count"][one] == 4
    assert found["houston_guidance_latency_seconds_sum"][one] == pytest.approx(100_073.5)
    drift = {dict(k)["drift"]: v for k, v in found["houston_drift_total"].items()}
    assert drift == {"clean": 2, "forked": 1, "stripped": 1}
    assert found["houston_prefix_hit_ratio"][one] == pytest.approx(0.85)
    assert found["houston_sampled_tokens_total"][one] == 20
    engines = {dict(k)["engine"]: v for k, v in found["houston_engine_up"].items()}
    assert engines == {HOSTILE: 1, "far": 0}, "labels are escaped and read back"
    assert found["houston_restarts_total"][(("part", "workers"),)] == 2
    assert len(found["houston_rollouts"]) == 6, "a state without rollouts is there, as 0"
    assert "houston_disk_free_bytes" in found
    assert "houston_backup_age_seconds" not in found, "there is none"


STORES = {
    "half is copied": ("s3://b/p", "s3://b/p", 1, 1),
    "all is copied": ("s3://b/p", "s3://b/p", 2, 0),
    "nothing is": ("s3://b/p", "", 0, 2),
    "into another store": ("s3://b/p", "s3://b/old", 2, 2),
    "no store is named any more": ("", "s3://b/old", 1, None),
}
"""The store of the configuration; what the home's note says; what the store lacks."""


@pytest.mark.parametrize("name", STORES)
def test_what_a_store_lacks_is_counted(name: str, written: WrittenHome) -> None:
    url, of, seq, lacks = STORES[name]
    counted = totals(written)
    counted.events = 2
    if of:
        store_owner.write_note(written.home, StoreNote("id", of, seq, "now"))
    found = read(render_metrics(None, counted, written.home, url))
    assert found.get("houston_artifacts_lag_events", {}).get(()) == lacks


def test_who_needs_a_person_is_counted_by_reason(written: WrittenHome) -> None:
    for name, signals in (("a", ("error_streak", "error")), ("b", ("error_streak",)), ("c", ())):
        written.rollout(name)
        written.step(name, 1, observation=ObservationBody(tail="", attention=signals))
    found = read(render_metrics(None, totals(written), written.home))
    needing = {dict(k)["reason"]: v for k, v in found["houston_rollouts_needing"].items()}
    assert needing == {"error_streak": 2, "error": 1}


def test_training_runs_that_go_on_are_figures(written: WrittenHome) -> None:
    folder = written.home.path / "training" / "sft-1"
    folder.mkdir(parents=True)
    progress = '{"state":"running","step":12,"steps":48,"loss":1.25,"tokens_per_second":640.0}'
    (folder / "progress.json").write_text(progress)
    now = status("home", training={"sft-1": "step 12", "sft-2": "queued"}, policies={"e": "p@2"})
    found = read(render_metrics(now, totals(written), written.home))
    run = (("run", "sft-1"),)
    assert found["houston_training_step"] == {run: 12}, "one that has said nothing has no figure"
    assert found["houston_training_steps"] == {run: 48}
    assert found["houston_training_loss"] == {run: 1.25}
    assert found["houston_training_tokens_per_second"] == {run: 640}
    assert found["houston_policy_active"] == {(("engine", "e"),): 1}


def test_without_an_answer_of_the_recorder_the_database_still_counts(written: WrittenHome) -> None:
    sample(written, 1, "clean", 10, 5)
    found = read(render_metrics(None, totals(written), written.home))
    assert found["houston_recorder_up"][()] == 0
    assert found["houston_prefix_hit_ratio"][()] == 0.5
    assert "houston_queue" not in found


def test_counters_of_the_database_go_on_after_a_restart_and_count_once(
    written: WrittenHome,
) -> None:
    first = totals(written)
    sample(written, 1, "clean", 10, 5)
    first.read()
    first.read()
    sample(written, 2, "clean", 10, 5)
    first.read()
    assert first.drift == totals(written).drift == {"clean": 2}
    assert first.cached_tokens == totals(written).cached_tokens == 10


def test_costs_are_added_up_by_engine_and_reviewer(written: WrittenHome) -> None:
    for seq, cost in enumerate((0.5, None, 0.25), start=1):
        sample(written, seq, "clean", 10, 5, cost=cost)
    first = totals(written)
    written.connection.execute(
        "INSERT INTO review_costs VALUES (9, 'r', 'judge:e', 'q', 2, 9, 4, 0, 0.125, 1)"
    )
    first.read()
    found = read(render_metrics(None, first, written.home))["houston_cost_total"]
    assert found == {
        (("engine", HOSTILE), ("kind", "samples")): 0.75,
        (("engine", "judge:e"), ("kind", "review")): 0.125,
    }


def test_tokens_are_counted_by_engine_as_endpoints_say(written: WrittenHome) -> None:
    sample(written, 1, "clean", 900, 768, 70, 40)
    sample(written, 2, "clean", 100, None, 5)
    sample(written, 3, "clean", None, None)
    lines = render_metrics(None, totals(written), written.home).decode().splitlines()
    told = [one.rpartition(" ") for one in lines if one.startswith("houston_usage_tokens_total{")]
    counts = {labels.rpartition('kind="')[2].rstrip('"}'): float(n) for labels, _, n in told}
    assert counts == {"prompt": 1000, "cached": 768, "completion": 75, "reasoning": 40}


class Silent:
    """A recorder that has ended, or one that has not."""

    def __init__(self, answer: Status | None) -> None:
        self.answer = answer

    def status(self, patience: float) -> Status:
        if self.answer is None:
            raise HoustonError("The recorder has stopped.")
        return self.answer


def figures(written: WrittenHome, **settings: Any) -> MetricsExporter:
    metrics = MetricsSettings(seconds=0.1, **settings)
    return MetricsExporter(
        LoadedConfiguration(Configuration(metrics=metrics), written.home, "houston.toml")
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def until_read(url: str) -> bytes:
    end = time.monotonic() + 60
    while True:
        with urllib.request.urlopen(url, timeout=60) as answer:
            text = bytes(answer.read())
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        if text:
            return text
        assert time.monotonic() < end
        time.sleep(0.05)


def test_the_endpoint_answers_and_a_reader_that_says_nothing_holds_up_nobody(
    written: WrittenHome,
) -> None:
    port = free_port()
    made = figures(written, listen=f"127.0.0.1:{port}")
    made.start(Silent(status("/home")))  # type: ignore[arg-type]
    try:
        with socket.create_connection(("127.0.0.1", port)):  # says nothing, and stays
            assert read(until_read(f"http://127.0.0.1:{port}/metrics"))
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/other", timeout=60)
    finally:
        made.stop()


def test_the_file_is_whole_whenever_it_is_read(written: WrittenHome) -> None:
    made = figures(written, file="run/metrics.prom")
    file = written.home.path / "run" / "metrics.prom"
    file.parent.mkdir()
    made.start(Silent(None))  # type: ignore[arg-type]
    end = time.monotonic() + 60
    while not file.exists():
        assert time.monotonic() < end
        time.sleep(0.02)
    for _ in range(50):
        assert "houston_recorder_up" in read(file.read_bytes())
    made.stop()


@pytest.mark.parametrize("address", ["nonsense", "127.0.0.1:x", "127.0.0.1:99999", "{taken}"])
def test_an_address_that_cannot_be_had_keeps_the_daemon_from_starting(
    written: WrittenHome, address: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match="`metrics"):
            figures(written, listen=address.format(taken=taken))


@pytest.mark.parametrize(
    "file",
    ["houston.db", "chain.head", "blobs/x", "../home/houston.toml", "/dev/full", "run/f.prom"],
)
def test_a_file_that_is_something_else_keeps_the_daemon_from_starting(
    written: WrittenHome, file: str
) -> None:
    (written.home.path / "run" / "f.prom").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match=r"`metrics\.file` = .* cannot be written"):
        figures(written, file=file)


def test_signals_are_counted_as_their_steps_close(tmp_path: Path) -> None:
    with closing(WrittenHome(tmp_path / "home")) as home:
        home.rollout("r")
        home.step("r", 1, observation=seen("error", "error_streak"))
        figures = DatabaseTotals(home.home.database)
        figures.read()
        home.step("r", 2, observation=seen("error"))
        home.step("r", 3, observation=seen())
        figures.read()
        figures.read()
        found = read(render_metrics(None, figures, home.home))["houston_attention_total"]
        assert {dict(labels)["signal"]: count for labels, count in found.items()} == {
            "error": 2,
            "error_streak": 1,
        }


def seen(*signals: str) -> ObservationBody:
    return ObservationBody(tail="", attention=signals)
