"""What an engine's table gets wrong is said by `rollout start`, and nothing is queued."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.agent.endpoint import Endpoint, call, error
from tests.support.small_tokenizer import small_tokenizer
from tests.support.station import Station
from tests.support.tiers import sampled

WRONG: dict[str, tuple[str, str]] = {
    "a dialect that is none": (
        'kind = "token"\ndialect = "qwen2"',
        "There is no dialect 'qwen2'; there are: chatml-calls, chatml-json,",
    ),
    "a dialect that breaks an invariant": (
        'kind = "token"\ndialect = "deepseek-r1"',
        "is refused: an answer that is written anew must be read back as it was said",
    ),
    "a dialect that is none, of a chat endpoint": (
        'kind = "chat"\nmodel = "m"\ndialect = "qwen2"',
        "There is no dialect 'qwen2'",
    ),
    "no tokenizer": ('kind = "token"', "its tokenizer is not known"),
    "a tokenizer that is not there": (
        'kind = "token"\ntokenizer = "/nowhere/tokenizer.json"',
        "There is no tokenizer file /nowhere/tokenizer.json",
    ),
    "a tokenizer that is none": (
        'kind = "token"\ntokenizer = "{folder}/broken.json"',
        "broken.json is no tokenizer",
    ),
    "a dialect of another family": (
        'kind = "token"\ntokenizer = "{folder}/other.json"',
        "has no token <|im_end|>, which the dialect chatml-json writes",
    ),
    "a folder that is not there": (
        'kind = "vllm"\nmodel = "/nowhere/model"',
        "There is no folder /nowhere/model, which `model` names",
    ),
    "a chat endpoint without a model": ('kind = "chat"', "needs the key `model`"),
    "arguments that are ours": (
        'kind = "vllm"\nargs = ["--dtype", "half", "--port=80"]',
        "`args` may not name --port: Houston sets it",
    ),
    "arguments that are ours, shortened": (
        'kind = "vllm"\nargs = ["--served-model", "x"]',
        "`args` may not name --served-model: Houston sets it",
    ),
    "arguments beside a command": (
        'kind = "vllm"\ncommand = ["serve"]\nargs = ["--dtype", "half"]',
        "`args` is only for a `vllm` child",
    ),
    "parameters that are ours": (
        'kind = "chat"\nmodel = "m"\nparameters = {{ messages = [] }}',
        "`parameters` of an engine of kind 'chat' may not name messages",
    ),
    "a key in a header": (
        'kind = "chat"\nmodel = "m"\nheaders = {{ Authorization = "Bearer x" }}',
        "The header 'Authorization' of `headers` looks like a secret",
    ),
}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint(lambda body: call("finish"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory, endpoint: Endpoint) -> Iterator[Station]:
    """A daemon whose configuration has every wrong engine, by number."""
    folder = tmp_path_factory.mktemp("engines")
    (folder / "broken.json").write_text("{}")
    made = Path(small_tokenizer(folder)).read_text()
    (folder / "other.json").write_text(made.replace("<|im_end|>", "<|turn_end|>"))
    station = Station(folder)
    station.home.mkdir()
    tables = [
        f"[engines.e{number}]\n{'' if 'vllm' in table else f'url = {endpoint.url!r}'}\n"
        + table.format(folder=folder)
        for number, (table, _) in enumerate(WRONG.values())
    ]
    (station.home / "houston.toml").write_text("\n".join(tables) + "\n")
    station.start()
    station.task()
    yield station
    station.clear()


@pytest.mark.parametrize("case", sampled(WRONG, 4))
def test_wrong_settings_are_refused_at_the_start(wrong: Station, case: str) -> None:
    name = f"e{list(WRONG).index(case)}"
    task = str(wrong.folder / "tasks" / "probe" / "task.toml")
    done = wrong.run("rollout", "start", task, "--engine", name, code=78)
    assert WRONG[case][1] in done.stderr and f"[engines.{name}]" in done.stderr, done.stderr
    assert "No rollout was started." in done.stderr and "Traceback" not in done.stderr
    assert wrong.run("rollout", "list", "--json").stdout == ""


def test_a_refused_parameter_is_mended_in_the_configuration(station: Station) -> None:
    made = Endpoint(lambda body: call("finish") if "top_k" not in body else error(400, "top_k?"))
    station.home.mkdir()
    config = station.home / "houston.toml"
    table = f'[engines.e]\nkind = "chat"\nurl = "{made.url}"\nmodel = "m"\n'
    config.write_text(f"{table}parameters = {{ top_k = 5 }}\n")
    station.start()
    (rollout,) = station.rollout(station.task(), "e")
    station.until(lambda: station.state(rollout) == "paused", 60, "it is paused")
    config.write_text(f'{table}headers = {{ Cookie = "x" }}\n')
    station.run("daemon", "restart")
    log = station.home / "logs" / "daemon.log"
    why = "engine e keeps its old request settings: The header 'Cookie'"
    station.until(lambda: why in log.read_text(), 60, "a wrong mend is said")
    station.until(lambda: station.state(rollout) == "paused", 60, "and ends nothing")
    config.write_text(f"{table}parameters = {{ seed = 7 }}\n")
    station.run("daemon", "restart")
    assert station.ended(rollout)["state"] == "finished"
    assert made.asked[-1]["seed"] == 7
    made.close()


@pytest.mark.slow
def test_a_refused_key_is_seen_everywhere_and_mended(station: Station) -> None:
    """Status, list, show and metrics say it; a restart of the daemon brings the new key."""
    made = Endpoint(lambda body: call("finish"))
    fine = made.decide
    made.decide = lambda body: (
        fine(body) if made.keys[-1] == "Bearer right-key" else error(401, "Incorrect API key")
    )
    station.home.mkdir()
    (station.home / "houston.toml").write_text(
        f'[engines.e]\nkind = "chat"\nurl = "{made.url}"\nmodel = "m"\n'
        'api_key_env = "ENDPOINT_KEY"\n[metrics]\nfile = "figures.prom"\nseconds = 0.2\n'
    )
    station.environment["ENDPOINT_KEY"] = "wrong-key"
    station.start()
    (started,) = station.json("rollout", "start", str(station.task()), "--engine", "e")
    rollout = started["rollout"]

    def shown() -> dict[str, Any]:
        return station.json("rollout", "show", rollout)[0]

    station.until(lambda: shown()["state"] == "paused", 60, "it is paused")
    one = shown()
    assert one["paused_by"] == "engine"
    assert "401: Incorrect API key" in one["reason"] and "houston daemon restart" in one["reason"]
    (listed,) = station.json("rollout", "list")
    assert listed["state"] == "paused" and listed["reason"] == one["reason"]

    def status() -> str:
        return str(station.json("daemon", "status")[0]["engines"]["e"])

    station.until(lambda: status().startswith("failing"), 60, "the status says it")
    assert "401: Incorrect API key" in status()
    figures = station.home / "figures.prom"
    told = ('houston_engine_up{engine="e"} 0.0', 'houston_rollouts_paused{by="engine"} 1.0')
    station.until(lambda: all(one in figures.read_text() for one in told), 60, "figures say it")
    station.environment["ENDPOINT_KEY"] = "right-key"
    station.run("daemon", "restart")
    station.until(lambda: shown()["state"] == "finished", 60, "it went on")
    made.close()
