"""Every behaviour of an endpoint, as `engine check` tells it and as a rollout takes it.

A real HTTP server, the real check and real worker processes; the page's table is held to it.
"""

import asyncio
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from houston_daemon.agent import rollout_worker, sample_requests
from houston_daemon.engines import chat_engine, token_engine
from houston_daemon.service.check_findings import CheckFinding
from houston_daemon.service.engine_check import CHECK_ORDER, check_engine
from houston_daemon.service.rollout_start_checks import check_engine as check_before_start
from houston_shared import command
from houston_shared.backoff import RetryPolicy
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.records import AWAY_ACTIVITY
from tests.integration.agent.endpoint import Answer, Endpoint, call, error, says
from tests.integration.agent.rig import Rig
from tests.support.endpoint_behaviours import BEHAVIOURS, Behaviour, table
from tests.support.tiers import sampled
from tests.support.token_id_server import NOTE, IdServer, byte_tokenizer

PAGE = Path(__file__).parents[2] / "docs" / "engines.md"
STEPS = 4
TASK = f"[budget]\nsteps = {STEPS}\nminimum_steps = {STEPS}\nevaluations = 0\n"
LONG_TASK = "[budget]\nsteps = 12\nminimum_steps = 12\nevaluations = 0\n"
CHAT = {name: own for name, own in BEHAVIOURS.items() if "token ids" not in name}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    made = Rig(tmp_path)
    yield made
    made.close()


def configured(folder: Path, settings: dict[str, Any]) -> LoadedConfiguration:
    engines = {"it": msgspec.convert(settings, EngineSettings)}
    return LoadedConfiguration(
        Configuration(engines=engines), Home(folder / "home"), "houston.toml"
    )


def checked(
    folder: Path, settings: dict[str, Any], seconds: float = 20.0
) -> dict[str, CheckFinding]:
    found = asyncio.run(check_engine(configured(folder, settings), "it", seconds))
    assert [finding.name for finding in found] == list(CHECK_ORDER)
    for finding in found:
        assert finding.state != "fail" or finding.next, "who finds something says what to do"
    return {finding.name: finding for finding in found}


def asking_soon(words: list[str]) -> int:
    """A worker that waits as long as a test may."""
    sample_requests.ENGINE_REFUSED_WAITS = (0.05,)
    sample_requests.ENGINE_AWAY_WAITS = (0.05,)
    quick = RetryPolicy(attempts=2, first_wait=0.01, max_wait=0.02)
    for engine in (chat_engine, token_engine):
        engine.RetryPolicy = lambda: quick  # type: ignore[attr-defined]
    chat_engine.CHAT_READ_SECONDS = 1.0
    return rollout_worker.main(words)


def test_the_page_has_the_table() -> None:
    assert table() in PAGE.read_text(), f"the table of {PAGE.name} is:\n{table()}"
    assert len(BEHAVIOURS) >= 12


@pytest.fixture
def note() -> Answer:
    """What an endpoint answers the check that does all it should."""
    return call("note", text="ready")


def test_an_endpoint_that_does_all_it_should(tmp_path: Path, note: Answer) -> None:
    endpoint = Endpoint(lambda body: note)
    found = checked(tmp_path, {**endpoint.settings, "price": {"input": 1.0, "output": 2.0}})
    endpoint.close()
    assert not [finding for finding in found.values() if finding.state == "fail"]
    assert found["tool call"].text == "note(text='ready')"
    assert "100 prompt" in found["usage"].text and "7 sampled" in found["usage"].text
    assert "this check cost 0.000114 USD" in found["price"].text


@pytest.mark.parametrize("case", [name for name in CHAT if CHAT[name].answer is not None])
def test_the_check_tells_it(tmp_path: Path, case: str, note: Answer) -> None:
    own = CHAT[case]
    line, state = own.check
    asked: list[Any] = []

    def decide(body: Any) -> Answer:
        asked.append(body)
        assert own.answer is not None
        return note if state == "ok" and len(asked) > 1 else own.trial or own.answer

    endpoint = Endpoint(decide, pages=own.pages)
    seconds = 1.0 if own.answer is not None and getattr(own.answer, "silent", False) else 20.0
    try:
        found = checked(tmp_path, endpoint.settings, seconds)
    finally:
        endpoint.close()
    assert found[line].state == state, found[line]
    if state == "fail" and own.words and line != "reachable" and seconds > 1:
        assert own.words in found[line].text
    failed = {name for name, finding in found.items() if finding.state == "fail"}
    assert failed <= {line}, "one fault is told on one line"


@pytest.mark.parametrize(
    ("sampled_at_root", "state", "text", "step"),
    [
        pytest.param(404, "fail", "{url}/v1 is one", "Add /v1 to `engines.it.url`.", id="no page"),
        pytest.param(405, "fail", "{url}/v1 is one", "Add /v1 to `engines.it.url`.", id="no POST"),
        pytest.param(400, "ok", "{url} answers, and lists no models (404)", "", id="it samples"),
    ],
)
def test_a_forgotten_v1_is_told(
    tmp_path: Path, note: Answer, sampled_at_root: int, state: str, text: str, step: str
) -> None:
    """A server that samples at the plain address, too, lacks only the list there."""

    def sample_at_root(body: Any) -> Answer:
        refused = sampled_at_root != 400 or "messages" not in body
        return error(sampled_at_root, "messages is required") if refused else note

    pages = {
        "/v1/models": lambda _: (200, {"data": []}),
        "/models": lambda _: error(404, "Not Found"),
        "/v1/chat/completions": lambda _: note,
        "/chat/completions": sample_at_root,
    }
    endpoint = Endpoint(lambda body: note, pages=pages)
    url = endpoint.url.removesuffix("/v1")
    findings = checked(tmp_path, {**endpoint.settings, "url": url})
    endpoint.close()
    found = findings["reachable"]
    assert (found.state, found.next) == (state, step) and text.format(url=url) in found.text
    assert (findings["tool call"].state == "ok") == (state == "ok")


def test_nobody_there(tmp_path: Path) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}/v1"
        found = checked(tmp_path, {"kind": "chat", "url": url, "model": "m"})
    assert found["reachable"].state == "fail" and url in found["reachable"].text


@pytest.mark.parametrize("case", sampled(CHAT, 3))
def test_a_rollout_takes_it(rig: Rig, case: str) -> None:
    own = CHAT[case]
    endpoint = Endpoint(lambda body: call(text="x"))
    settings = endpoint.settings
    if own.answer is None:  # nobody is there from the third sample on
        port = int(settings["url"].rsplit(":", 1)[1].removesuffix("/v1"))
    try:
        process, rollout = _start(rig, own, endpoint, settings)
        if own.outcome in ("waits", "paused"):
            _until_it_says(rig, own, rollout)
            if own.answer is None:
                endpoint = Endpoint(lambda body: call(text="x"), port)
            endpoint.decide = lambda body: call(text="x")
        process.join(120)
        assert process.exitcode == 0
    finally:
        endpoint.close()
    assert rig.state(rollout)[0] == "finished", rig.state(rollout)
    steps = rig.steps(rollout)
    assert [step.step for step in steps] == list(range(1, len(steps) + 1))
    forks = rig.query("SELECT count(*) FROM forks WHERE rollout=?", rollout)[0][0]
    assert (forks > 0) == (own.outcome == "forks")
    if own.outcome == "goes on":
        assert own.step(steps[2]), steps[2].sample


def _start(rig: Rig, own: Behaviour, endpoint: Endpoint, settings: Any) -> tuple[Any, str]:
    """A worker whose third sample is answered so, and what comes after it where that is refused."""
    kept = own.outcome in ("waits", "paused")

    def decide(body: dict[str, Any]) -> Answer:
        size = sum(len(str(message["content"])) for message in body["messages"])
        if own.outcome == "forks" and size > 16_000:
            assert own.answer is not None
            return own.answer
        if own.outcome == "forks":
            return call(text="word " * 500) if "tools" in body else says("Nothing of use.")
        if len(endpoint.asked) == 3 or (kept and len(endpoint.asked) > 3):
            return own.answer or _gone(endpoint)
        return call(text="x")

    endpoint.decide = decide
    task = LONG_TASK if own.outcome == "forks" else TASK
    rollout = rig.rollout(settings=settings, task=task)
    return rig.start(asking_soon, rollout), rollout


def _gone(endpoint: Endpoint) -> Answer:
    """End the server in the middle of a request."""
    endpoint.close_soon()
    return call(text="x")


def _until_it_says(rig: Rig, own: Behaviour, rollout: str) -> None:
    state = "paused" if own.outcome == "paused" else "running"
    query = "SELECT reason, activity FROM rollouts WHERE id=? AND state=?"

    def said() -> str:
        ((reason, activity),) = rig.query(query, rollout, state) or [("", "")]
        told = str(reason) if own.outcome == "paused" else str(activity)
        waits = str(activity).startswith(AWAY_ACTIVITY)
        return told if waits and own.words in told else ""

    assert rig.until(said, why=f"it is {own.outcome}, and says {own.words!r}")


@pytest.mark.parametrize("after_temperature", [False, True], ids=["raw", "processed"])
def test_what_log_probabilities_are_of(tmp_path: Path, after_temperature: bool) -> None:
    file = byte_tokenizer(tmp_path / "model")
    server = IdServer(file, after_temperature=after_temperature)
    server.answer = NOTE
    found = checked(tmp_path, server.settings(file))
    server.endpoint.close()
    line = found["log-probabilities"]
    assert line.state == ("fail" if after_temperature else "ok"), line
    assert ("raw_logprobs" in line.next) == after_temperature
    others = {name for name, finding in found.items() if finding.state == "fail"}
    assert others <= {"log-probabilities"}
    assert found["tokenizer"].state == found["dialect"].state == found["adapters"].state == "ok"


def test_ids_without_log_probabilities(tmp_path: Path) -> None:
    file = byte_tokenizer(tmp_path / "model")
    server = IdServer(file, logprobs=False)
    found = checked(tmp_path, server.settings(file))
    server.endpoint.close()
    assert (found["log-probabilities"].state, found["tool call"].state) == ("fail", "skip")


def test_a_rollout_without_log_probabilities(rig: Rig) -> None:
    own = BEHAVIOURS["no log-probabilities (token ids)"]
    file = byte_tokenizer(rig.folder / "model")
    server = IdServer(file, logprobs=False)
    rollout = rig.rollout(settings=server.settings(file), task=TASK)
    rig.start(asking_soon, rollout)
    _until_it_says(rig, own, rollout)
    server.endpoint.close()


def test_another_tokenizer_is_told_and_nothing_is_started(tmp_path: Path) -> None:
    theirs = byte_tokenizer(tmp_path / "theirs")
    ours = byte_tokenizer(tmp_path / "ours", first="<|im_start|>")
    server = IdServer(theirs)
    found = checked(tmp_path, server.settings(ours))
    with pytest.raises(HoustonError, match="is not the server's") as refused:
        check_before_start(configured(tmp_path, server.settings(ours)), "it", {})
    check_before_start(configured(tmp_path, server.settings(theirs)), "it", {})
    server.endpoint.close()
    assert found["tokenizer"].state == "fail"
    assert "'<|im_end|>', is 257 here and 256 there" in found["tokenizer"].text
    assert "houston engine check it" in refused.value.next


@pytest.mark.parametrize(
    "case", ["401, the key is wrong", "HTML instead of JSON", "the connection is refused"]
)
def test_nothing_is_started_on_what_says_so_itself(tmp_path: Path, case: str) -> None:
    endpoint = Endpoint(lambda body: call(text="x"), pages=BEHAVIOURS[case].pages)
    settings = endpoint.settings
    if case == "the connection is refused":
        endpoint.close()
    with pytest.raises(HoustonError) as refused:
        check_before_start(configured(tmp_path, settings), "it", {})
    endpoint.close()
    assert refused.value.effect == "No rollout was started." and refused.value.next


def test_a_server_like_sglang(tmp_path: Path) -> None:
    """From its source (0.5.23): ids, log-probabilities and `/tokenize` as vLLM's, adapters at an
    address of its own, and no `structured_outputs`: what it writes is unguided."""
    file = byte_tokenizer(tmp_path / "model")
    server = IdServer(file, adapters=False)
    server.answer = "ready"
    found = checked(tmp_path, server.settings(file))
    server.endpoint.close()
    assert found["tokenizer"].state == found["log-probabilities"].state == "ok"
    assert (found["adapters"].state, found["tool call"].state) == ("skip", "fail")


def test_an_endpoint_without_tools_is_told_them_as_text(tmp_path: Path) -> None:
    """And answers in the dialect's form, as the check and rollouts read it."""
    endpoint = Endpoint(lambda body: error(400, "tools?") if "tools" in body else says(NOTE))
    refused = checked(tmp_path, endpoint.settings)["tool call"]
    found = checked(tmp_path, {**endpoint.settings, "tool_calls": "text"})
    endpoint.close()
    assert refused.state == "fail" and 'tool_calls` to "text"' in refused.next
    assert found["tool call"].text == "note(text='ready')" and found["dialect"].state == "ok"
    assert '"name": "note"' in endpoint.asked[-1]["messages"][0]["content"]


def test_the_command_says_a_line_each_and_fails_where_one_does(
    tmp_path: Path, note: Answer, capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = Endpoint(lambda body: note)
    file = tmp_path / "houston.toml"
    file.write_text(
        f'home = "{tmp_path}/home"\n[engines.it]\nkind = "chat"\nurl = "{endpoint.url}"\n'
        'model = "m"\n[engines.unset]\nkind = "chat"\nurl = "http://127.0.0.1:1/v1"\nmodel = "m"\n'
        'api_key_env = "NO_SUCH_KEY"\n'
    )
    words = ["--config", str(file), "engine", "check"]
    assert command.main([*words, "it", "--json"]) == ExitCode.DONE
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["check"] for line in lines] == list(CHECK_ORDER)
    assert {line["state"] for line in lines} == {"ok", "skip"}
    assert command.main([*words, "unset"]) == ExitCode.FAILED
    said = capsys.readouterr()
    assert "fail key" in said.out and "next: export NO_SUCH_KEY=…" in said.out
    assert "unset: rollouts would not run well on it (key)." in said.err
    assert command.main([*words, "none"]) == ExitCode.NOT_FOUND
    assert "There is no engine 'none'" in capsys.readouterr().err
    assert not (tmp_path / "home").exists(), "asking makes nothing"
    endpoint.close()
