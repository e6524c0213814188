"""Engines: found, watched, tried again; rollouts wait only for one that is down for long."""

import json
import os
import pwd
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.engines.engine_process import process_start_time
from houston_daemon.review.judge.judge_engine import JudgeEnginePlace
from houston_daemon.service import engine_endpoints, engine_supervisor
from houston_daemon.service.daemon_log import read_log_tail
from houston_daemon.service.engine_child import end_former_replicas, end_orphaned_engines
from houston_daemon.service.engine_restarts import EngineState, EngineWatch
from houston_daemon.service.engine_supervisor import (
    ENGINE_PATIENCE_SECONDS,
    EngineSupervisor,
    MissingEngine,
    RemoteEngine,
    RemoteReplica,
    ReplicaServers,
    engine_server_factory,
)
from houston_daemon.service.gpu_ledger import GpuLedger
from houston_daemon.service.supervisor_inbox import SupervisorInbox
from houston_daemon.training.policies import adapter_loader
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import DaemonSettings
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home
from tests.support.web import Handler, web


class Pauses:
    """The part of the recorder that pauses rollouts for an engine."""

    def __init__(self) -> None:
        self.said: list[tuple[str, bool]] = []

    def pause_for_engine(self, engine: str, down: bool, reason: str = "") -> None:
        assert reason or not down
        self.said.append((engine, down))


@contextmanager
def listening(port: int = 0) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", port)) as server:
        yield int(server.getsockname()[1])


def loaded(tmp_path: Path, **engines: EngineSettings) -> LoadedConfiguration:
    return LoadedConfiguration(Configuration(engines=engines), Home(tmp_path), "houston.toml")


class Watching:
    """Engines with a real inbox."""

    def __init__(
        self, configuration: LoadedConfiguration, gpus: dict[str, int] | None = None
    ) -> None:
        self.inbox = SupervisorInbox()
        self.pauses = Pauses()
        self.gpus = GpuLedger(configuration.home.path / "gpus.json", gpus or {})
        self.engines = EngineSupervisor(
            engine_server_factory(configuration, self.gpus), self.pauses, self.inbox.put
        )  # type: ignore[arg-type]

    def until(self, done: Callable[[], bool], now: float = 0.0) -> None:
        end = time.monotonic() + 60
        while not done():
            assert time.monotonic() < end, f"it did not happen: {self.engines.states}"
            for event in self.inbox.wait(0.1):
                assert isinstance(event, EngineState)
                self.engines.on_state(event, now)


def test_an_edited_engine_is_made_anew_when_nobody_uses_it(tmp_path: Path) -> None:
    configuration = loaded(tmp_path, far=EngineSettings(kind="token", url="http://127.0.0.1:1/v1"))
    watching = Watching(configuration)
    watching.engines.watch(["far"])
    watching.until(lambda: watching.engines.states["far"].startswith("down"))
    with listening() as port:
        far = EngineSettings(kind="token", url=f"http://127.0.0.1:{port}/v1")
        configuration.config = Configuration(engines={"far": far})
        watching.engines.mark_edited("far")
        watching.engines.mark_edited("never used")
        watching.engines.replace_edited({"far"})
        assert watching.engines.edited_in_use == ("far",)
        watching.engines.replace_edited(set())
        assert (watching.engines.edited_in_use, watching.engines.states) == ((), {})
        watching.engines.watch(["far"])
        watching.until(lambda: watching.engines.states["far"] == "ready")
    watching.engines.stop(False, 5)


def test_no_two_engines_share_their_files(tmp_path: Path) -> None:
    """Full weights have an engine named after them; anybody may call another one `policy_3`."""
    names = ("policy@3", "policy_3", "policy 3", "policy/3", "policy%403")
    files = [engine_endpoints.state_file(Home(tmp_path), name) for name in names]
    assert len(set(files)) == len(names)
    assert {file.parent for file in files} == {files[0].parent}


def test_an_engine_at_a_url_is_ready_when_it_answers_and_down_when_not(tmp_path: Path) -> None:
    with listening() as port:
        far = EngineSettings(kind="token", url=f"http://127.0.0.1:{port}/v1")
        bench = Watching(loaded(tmp_path, far=far))
        bench.engines.watch(["far", "script:/x", "far"])
        assert bench.engines.reachable("script:/x") == "", "a file is always there"
        bench.until(lambda: bench.engines.states["far"] == "ready")
        assert bench.engines.reachable("far") == "", "workers have its URL in their settings"
    bench.until(lambda: bench.engines.states["far"].startswith("down"))
    assert str(port) in bench.engines.states["far"]
    assert bench.engines.reachable("far") is None
    with listening(port):
        bench.until(lambda: bench.engines.states["far"] == "ready")
    bench.engines.stop(keep=False, seconds=5)
    assert list(bench.engines.states) == ["far"], "files are not shown"


def test_an_engine_behind_a_proxy_is_watched_and_asked_through_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As its workers sample: from here nothing else reaches it."""
    url = "http://engine.invalid:8000/v1"
    settings = EngineSettings(kind="token", urls=(url,))
    server = adapter_loader.AdapterServer("far", url, "")
    for name in ("no_proxy", "NO_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with web() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url())
        listed = (200, {}, json.dumps({"data": [{"id": "m"}]}).encode())
        proxy.pages |= {
            f"{url}/models": listed,
            "http://engine.invalid:8000/health": (200, {}, b""),
        }
        assert engine_endpoints.connection_problem(url) == ""
        for watched in (RemoteEngine(url), RemoteReplica(url, settings)):
            watched.bring_up()
            assert watched.alive() and watched.healthy()
        assert adapter_loader.served_models(server).model == "m"
        for page in list(proxy.pages):
            proxy.pages[page] = (502, {}, b"nobody is there")
        for watched in (RemoteEngine(url), RemoteReplica(url, settings)):
            with pytest.raises(HoustonError, match="502"):
                watched.bring_up()
            assert not watched.alive()


def test_an_engine_behind_a_proxy_is_asked_now_and_then_and_its_answer_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each time is a whole request, and a list of models may be long."""

    def begin_long_list(handler: Handler) -> None:
        handler.begin({"Transfer-Encoding": "chunked"})
        handler.wfile.write(b"no chunk")

    for name in ("no_proxy", "NO_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)
    with web() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url())
        proxy.pages["http://engine.invalid:8000/v1/models"] = begin_long_list
        watched = RemoteEngine("http://engine.invalid:8000/v1")
        watched.bring_up()
        assert all(watched.alive() for _ in range(5))
        assert len(proxy.asked) == 1
        monkeypatch.setattr(engine_supervisor, "PROXY_CHECK_SECONDS", 0.0)
        watched = RemoteEngine("http://engine.invalid:8000/v1")
        assert watched.alive()
        proxy.pages.clear()
        proxy.pages["http://engine.invalid:8000/v1/models"] = (502, {}, b"nobody is there")
        assert not watched.alive() and not watched.alive()


def test_rollouts_wait_for_an_engine_that_is_down_for_long(tmp_path: Path) -> None:
    bench = Watching(loaded(tmp_path))
    states = [
        ("starting", 0.0, []),
        ("ready", 1.0, [("gone", False)]),  # what an earlier daemon had paused goes on
        ("down: killed", 10.0, []),
        ("down: still", 10.0 + ENGINE_PATIENCE_SECONDS - 1, []),
        ("ready", 10.0 + ENGINE_PATIENCE_SECONDS - 0.5, []),
        ("down: again", 100.0, []),
        ("down: again", 100.0 + ENGINE_PATIENCE_SECONDS + 1, [("gone", True)]),
        # And again, for rollouts that were started since.
        ("down: again", 100.0 + ENGINE_PATIENCE_SECONDS + 9, [("gone", True)]),
        ("ready", 200.0, [("gone", False)]),
        ("ready", 201.0, []),
    ]
    bench.engines.watch(["gone"])
    bench.until(lambda: bench.engines.states["gone"].startswith("down"))
    bench.engines.stop(keep=True, seconds=5)
    bench.engines.on_state(EngineState("gone", "ready", ""), 0.0)
    bench.engines.on_state(EngineState("gone", "starting", ""), 0.0)
    for state, now, said in states:
        bench.pauses.said.clear()
        bench.engines.on_state(EngineState("gone", state, ""), now)
        bench.engines.pause_and_resume(now)
        assert bench.pauses.said == said, (state, now)


def test_an_engine_that_the_configuration_lost_says_so(tmp_path: Path) -> None:
    server = engine_server_factory(loaded(tmp_path), GpuLedger(tmp_path / "gpus.json", {}))("lost")
    assert isinstance(server, MissingEngine)
    with pytest.raises(ConfigurationError, match="lost"):
        server.bring_up()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://node:8000/v1", ("node", 8000)),
        ("https://api.example.com/v1", ("api.example.com", 443)),
        ("http://[::1]:80", ("::1", 80)),
        ("node:8000", None),
        ("ftp://node", None),
        ("http://node:eight", None),
        ("http://", None),
    ],
)
def test_addresses_of_engines(url: str, expected: tuple[str, int] | None) -> None:
    if expected:
        assert engine_endpoints.parse_address(url) == expected
        return
    with pytest.raises(ConfigurationError, match="not an http"):
        engine_endpoints.parse_address(url)


def test_a_port_is_chosen_once_for_a_home_and_an_engine(tmp_path: Path) -> None:
    home = Home(tmp_path)
    first = engine_endpoints.kept_port(home, "embedded", EngineSettings(kind="embedded"))
    assert engine_endpoints.kept_port(home, "embedded", EngineSettings(kind="embedded")) == first
    assert engine_endpoints.kept_port(home, "other", EngineSettings(kind="embedded")) != first
    assert engine_endpoints.kept_port(home, "fixed", EngineSettings(kind="vllm", port=4321)) == 4321


def test_a_port_that_somebody_took_is_replaced_unless_it_is_configured(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with listening() as port:
        other = engine_endpoints.usable_port(home, "e", EngineSettings(kind="embedded"), port)
        assert other != port
        assert engine_endpoints.kept_port(home, "e", EngineSettings(kind="embedded")) == other, (
            "kept"
        )
        with pytest.raises(HoustonError, match=f"Port {port} of engine 'e' is taken"):
            engine_endpoints.usable_port(
                home, "e", EngineSettings(kind="embedded", port=port), port
            )


def test_an_engine_whose_files_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    """A full disk may last for an hour; the engine is not given up meanwhile."""
    in_the_way = tmp_path / "run"
    in_the_way.write_text("")
    bench = Watching(loaded(tmp_path, own=child_engine()))
    bench.engines.watch(["own"])
    bench.until(lambda: "Not a directory" in bench.engines.states["own"])
    in_the_way.unlink()
    bench.until(lambda: bench.engines.states["own"] == "ready")
    bench.engines.stop(keep=False, seconds=5)


def test_a_user_without_a_name_has_engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A container may run as a number that no passwd entry has."""

    def unknown(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    bench = Watching(loaded(tmp_path, own=child_engine()))
    bench.engines.watch(["own"])
    bench.until(lambda: bench.engines.states["own"] == "ready")
    bench.engines.stop(keep=False, seconds=5)


def test_a_fault_while_an_engine_is_brought_up_is_told_and_tried_again() -> None:
    tries: list[None] = []

    class Faulty(RemoteEngine):
        def bring_up(self) -> None:
            tries.append(None)
            if len(tries) == 1:
                raise KeyError("gone")

        def healthy(self) -> bool:
            return True

    states: list[str] = []
    watch = EngineWatch(
        "faulty", Faulty("http://127.0.0.1:1"), lambda told: states.append(told.state)
    )
    watch.start()
    end = time.monotonic() + 60
    while "ready" not in states:
        assert time.monotonic() < end, states
        time.sleep(0.02)
    watch.stop(keep=True, seconds=5)
    assert states == ["starting", "down: KeyError: 'gone'", "ready"]


def test_an_engine_waits_for_its_gpu_and_gives_it_back(tmp_path: Path) -> None:
    own = msgspec.structs.replace(child_engine(), gpus=1)
    bench = Watching(loaded(tmp_path, own=own), {"local": 1})
    bench.gpus.lease("rollout:r", {"local": 1})
    bench.engines.watch(["own"])
    bench.until(lambda: bench.engines.states["own"].startswith("down"))
    assert (
        "waits for 1 GPU on local: all 1 are taken, used by rollout r"
        in (bench.engines.states["own"])
    )
    bench.gpus.release("rollout:r")
    bench.until(lambda: bench.engines.states["own"] == "ready")
    pid = msgspec.json.decode(engine_endpoints.state_file(Home(tmp_path), "own").read_bytes())[
        "pid"
    ]
    assert b"CUDA_VISIBLE_DEVICES=0" in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    bench.engines.stop(keep=False, seconds=5)
    assert bench.gpus.snapshot().leases == ()


@pytest.mark.parametrize(
    ("edit", "shown"),
    [
        pytest.param({}, {b"KNOB=1", b"CUDA_VISIBLE_DEVICES=0"}, id="nothing"),
        pytest.param(
            {"environment": {"KNOB": "2"}},
            {b"KNOB=2", b"CUDA_VISIBLE_DEVICES=0"},
            id="its environment",
        ),
        pytest.param({"gpus": 2}, {b"KNOB=1", b"CUDA_VISIBLE_DEVICES=0,1"}, id="its GPUs"),
        pytest.param({"gpus": 0}, {b"KNOB=1"}, id="that it has GPUs"),
        pytest.param({"gpus": 3}, None, id="more GPUs than there are"),
    ],
)
def test_a_child_is_found_again_only_as_it_would_be_started(
    tmp_path: Path, edit: dict[str, Any], shown: set[bytes] | None
) -> None:
    """What the ledger says of GPUs is what runs on them."""
    own = msgspec.structs.replace(child_engine(), gpus=1, environment={"KNOB": "1"})
    first = Watching(loaded(tmp_path, own=own), {"local": 2})
    first.engines.watch(["own"])
    first.until(lambda: first.engines.states["own"] == "ready")
    kept = pid_of(Home(tmp_path))
    first.engines.stop(keep=True, seconds=5)

    second = Watching(loaded(tmp_path, own=msgspec.structs.replace(own, **edit)), {"local": 2})
    second.engines.watch(["own"])
    expected = "down" if shown is None else "ready"
    second.until(lambda: second.engines.states["own"].startswith(expected))
    numbers = [lease.gpu for lease in second.gpus.snapshot().leases]
    if shown is None:
        assert (process_start_time(kept), numbers) == (None, [])
    else:
        pid = pid_of(Home(tmp_path))
        environment = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        added = {each for each in environment if each.startswith((b"KNOB=", b"CUDA_VISIBLE"))}
        assert (pid == kept, added) == (not edit, shown)
        assert len(numbers) == edit.get("gpus", 1)
    second.engines.stop(keep=False, seconds=5)


def test_stopping_is_bounded_even_when_an_engine_hangs(tmp_path: Path) -> None:
    asked = threading.Event()

    class Hanging(RemoteEngine):
        def bring_up(self) -> None:
            asked.set()
            time.sleep(5)

    inbox = SupervisorInbox()
    engines = EngineSupervisor(lambda name: Hanging("http://127.0.0.1:1"), Pauses(), inbox.put)  # type: ignore[arg-type]
    engines.watch(["hangs"])
    asked.wait(60)
    before = time.monotonic()
    engines.stop(keep=False, seconds=0.3)
    assert time.monotonic() - before < 4


@pytest.mark.parametrize("let_go", ["dropped", "taken out and put back"])
def test_a_server_waits_for_the_end_of_the_one_before_it(let_go: str) -> None:
    """They have one state file and one lease of a GPU: the first would end the second."""
    told: list[str] = []
    may_end, second_up = threading.Event(), threading.Event()

    class SlowlyEnding(RemoteEngine):
        def __init__(self, name: str) -> None:
            super().__init__("http://127.0.0.1:1")
            self.name = name

        def bring_up(self) -> None:
            told.append(f"{self.name} up")
            if self.name == "second":
                second_up.set()

        def healthy(self) -> bool:
            return True

        def end(self, seconds: float = 10.0) -> None:
            if self.name == "first":
                assert may_end.wait(60)
                told.append("first ended")

    inbox = SupervisorInbox()
    servers: dict[str, RemoteEngine] = {"own": SlowlyEnding("first")}
    engines = EngineSupervisor(lambda name: ReplicaServers(dict(servers)), Pauses(), inbox.put)  # type: ignore[arg-type]
    engines.watch(["own"])
    while "first up" not in told:
        time.sleep(0.01)
    if let_go == "dropped":
        engines.drop("own")
        servers["own"] = SlowlyEnding("second")
        engines.watch(["own"])
    else:
        del servers["own"]
        engines.change_servers("own", 0.0)
        engines.end_drained([], 60.0)
        servers["own"] = SlowlyEnding("second")
        engines.change_servers("own", 61.0)
    assert not second_up.wait(0.3)
    may_end.set()
    assert second_up.wait(60)
    assert told == ["first up", "first ended", "second up"]
    engines.stop(keep=False, seconds=5)


ANSWERS = """
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
    def log_message(self, *args):
        pass
print("listening", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def child_engine(program: str = ANSWERS, port: int = 0) -> EngineSettings:
    return EngineSettings(kind="vllm", command=(sys.executable, "-c", program, "{port}"), port=port)


def pid_of(home: Home) -> int:
    return int(msgspec.json.decode(engine_endpoints.state_file(home, "own").read_bytes())["pid"])


def test_a_child_is_started_again_at_the_same_address_and_found_by_the_next_daemon(
    tmp_path: Path,
) -> None:
    configuration = loaded(tmp_path, own=child_engine())
    first = Watching(configuration)
    first.engines.watch(["own"])
    first.until(lambda: first.engines.states["own"] == "ready")
    url = first.engines.reachable("own")
    assert url
    killed = pid_of(configuration.home)
    os.kill(killed, signal.SIGKILL)
    first.until(lambda: first.engines.states["own"].startswith("down"))
    assert "listening" in first.engines.states["own"], "the last line of its log"
    first.until(lambda: first.engines.states["own"] == "ready")
    assert first.engines.reachable("own") == url
    first.engines.stop(keep=True, seconds=5)
    kept = pid_of(configuration.home)
    assert kept != killed

    second = Watching(configuration)
    second.engines.watch(["own"])
    second.until(lambda: second.engines.states["own"] == "ready")
    assert (second.engines.reachable("own"), pid_of(configuration.home)) == (url, kept)
    second.engines.stop(keep=True, seconds=5)

    other = Watching(loaded(tmp_path, own=child_engine(ANSWERS + "# changed")))
    other.engines.watch(["own"])
    other.until(lambda: other.engines.states["own"] == "ready")
    assert pid_of(configuration.home) != kept, "another command: another child"
    other.engines.stop(keep=True, seconds=5)
    assert end_orphaned_engines(configuration.home) == ["own"], "a stop ends what was left"
    assert end_orphaned_engines(configuration.home) == []


def test_a_copied_home_takes_no_engine_of_the_first(tmp_path: Path) -> None:
    """The copy has the first one's notes: it neither adopts nor ends what they name."""
    engine = child_engine()
    first = Watching(loaded(tmp_path / "first", own=engine))
    first.engines.watch(["own"])
    first.until(lambda: first.engines.states["own"] == "ready")
    home = Home(tmp_path / "first")
    shutil.copytree(home.path, tmp_path / "copy", ignore=shutil.ignore_patterns("*.pipe"))
    copied = Home(tmp_path / "copy")
    assert pid_of(copied) == pid_of(home)
    assert end_orphaned_engines(copied) == []
    shutil.rmtree(copied.path)
    shutil.copytree(home.path, copied.path, ignore=shutil.ignore_patterns("*.pipe"))
    second = Watching(loaded(copied.path, own=engine))
    second.engines.watch(["own"])
    second.until(lambda: second.engines.states["own"] == "ready")
    assert pid_of(copied) != pid_of(home)
    assert second.engines.reachable("own") != first.engines.reachable("own")
    second.engines.stop(keep=False, seconds=5)
    assert process_start_time(pid_of(home)) is not None, "the first one's engine runs on"
    assert first.engines.states["own"] == "ready"
    first.engines.stop(keep=False, seconds=5)


def test_a_child_that_cannot_start_says_why(tmp_path: Path) -> None:
    bench = Watching(loaded(tmp_path, own=child_engine("raise SystemExit('no such card')")))
    bench.engines.watch(["own"])
    bench.until(lambda: "no such card" in bench.engines.states["own"])
    assert bench.engines.reachable("own") is None
    bench.engines.stop(keep=False, seconds=5)


def test_a_program_that_is_not_there_leaves_no_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "t").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "t"))
    own = EngineSettings(kind="vllm", command=(str(tmp_path / "gone"),))
    bench = Watching(loaded(tmp_path, own=own))
    bench.engines.watch(["own"])
    bench.until(lambda: "cannot be started" in bench.engines.states["own"])
    bench.engines.stop(keep=False, seconds=5)
    for place in (tmp_path / "t", engine_endpoints.engines_folder(Home(tmp_path))):
        assert [folder for folder in place.iterdir() if folder.is_dir()] == []


def test_replicas_are_children_of_their_own(tmp_path: Path) -> None:
    """Each has its port and is found again; one that houston.toml has no place for any more is
    ended by the next daemon."""
    two = msgspec.structs.replace(child_engine(), replicas=2)
    configuration = loaded(tmp_path, own=two)
    bench = Watching(configuration)
    bench.engines.watch(["own"])
    bench.until(lambda: len(bench.engines.ready_urls("own")) == 2)
    first, second = bench.engines.ready_urls("own").values()
    with JudgeEnginePlace(configuration, "own", print) as place:
        assert set(place.child_settings()["urls"]) == {first, second}, "a judge asks both"
    told = bench.engines.announced_replicas()["own"]
    assert [(each.name, each.url) for each in told] == [("own", first), ("own#2", second)]
    bench.engines.stop(keep=True, seconds=5)
    end_former_replicas(configuration)
    again = Watching(configuration)
    again.engines.watch(["own"])
    again.until(lambda: len(again.engines.ready_urls("own")) == 2)
    assert list(again.engines.ready_urls("own").values()) == [first, second], "they ran on"
    again.engines.stop(keep=True, seconds=5)
    end_former_replicas(loaded(tmp_path, own=child_engine()))
    assert end_orphaned_engines(configuration.home) == ["own"], "only the first was left"


def test_an_engine_that_keeps_ending_is_waited_for_and_shown(tmp_path: Path) -> None:
    crashes = ANSWERS.replace(".serve_forever()", ".handle_request()")
    bench = Watching(loaded(tmp_path, own=child_engine(crashes)))
    bench.engines.watch(["own"])
    again: list[float] = []
    waits: list[float] = []

    def twice() -> bool:
        watched = bench.engines._watched["own"]
        if watched.state.startswith("down") and watched.next_try not in again:
            again.append(watched.next_try)
            waits.append(watched.next_try - time.monotonic())
        return bench.engines.restarts >= 2 and len(again) >= 3

    bench.until(twice)
    assert waits[2] > waits[0] + 1, "longer and longer, though it answered: 1, 2, 4 s"
    (said,) = bench.engines.troubles(again[2] - 1).values()
    assert "brought up again 2 times; again in 1 s" in said
    bench.engines.stop(keep=False, seconds=5)


def test_an_engine_writes_into_a_log_that_is_turned_over(tmp_path: Path) -> None:
    chatty = "for number in range(150_000):\n    print('line', number, flush=True)\n" + ANSWERS
    configuration = loaded(tmp_path, own=child_engine(chatty))
    small = DaemonSettings(log_mb=1, log_files=2)
    configuration = LoadedConfiguration(
        Configuration(engines=configuration.config.engines, daemon=small),
        configuration.home,
        "houston.toml",
    )
    bench = Watching(configuration)
    bench.engines.watch(["own"])
    bench.until(lambda: bench.engines.states["own"] == "ready")
    log = engine_endpoints.engine_log(configuration.home, "own")
    bench.engines.stop(keep=False, seconds=5)
    lines, _ = read_log_tail(log, 10**6)
    found = [int(line.split()[1]) for line in lines if line.startswith("line ")]
    assert found == list(range(150_000))
    assert log.with_name("own.log.1").exists()
    assert not engine_endpoints.state_file(configuration.home, "own").exists()


def test_a_child_whose_configured_port_is_taken_says_so(tmp_path: Path) -> None:
    with listening() as port:
        bench = Watching(loaded(tmp_path, own=child_engine(port=port)))
        bench.engines.watch(["own"])
        bench.until(lambda: f"Port {port}" in bench.engines.states["own"])
        bench.engines.stop(keep=False, seconds=5)
