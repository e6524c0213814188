"""Secrets never reach the database, the index, blobs, logs, the model or a command's output."""

import http.server
import json
import random
import sqlite3
import string
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from houston_shared.config import Configuration
from houston_shared.config_sections import ArtifactSettings, SecretSettings
from houston_shared.home import Home
from houston_shared.secret_redaction import (
    MIN_SECRET_CHARACTERS,
    Redactor,
    find_secret_values,
    secret_rules,
    too_short_secret_names,
)
from houston_shared.store.store_reader import read_blob
from tests.support.station import Station

ALPHABET = string.ascii_letters + string.digits
TEXT = "A line of ordinary text, with 3 numbers, a path /usr/bin/python3 and a hash 5d41402abc4b.\n"


def made(count: int, seed: int) -> list[str]:
    """Secrets of 8 to 60 characters."""
    chance = random.Random(seed)
    sizes = [chance.choice((8, 12, 20, 40, 60)) for _ in range(count)]
    return ["".join(chance.choices(ALPHABET, k=size)) for size in sizes]


SHAPED = {
    "AWS_KEY_ID": "AKIA" + "Q7" * 8,
    "GITHUB_TOKEN": "ghp_" + "a1B2" * 9,
    "GITLAB_TOKEN": "glpat-" + "x9Y_" * 5,
    "GOOGLE_KEY": "AIza" + "Sy-4_" * 7,
    "HF_TOKEN": "hf_" + "Ab3" * 12,
    "JWT": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.c2lnbmF0dXJlLW9mLXRoaXM",
    "SK_KEY": "sk-proj-" + "Zz9_" * 8,
    "SLACK_TOKEN": "xoxb-" + "123456789012-" * 2 + "abcdef",
    "PRIVATE_KEY": (
        "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7Zq1\n"
        + "b64/+" * 10 + "\n-----END RSA PRIVATE KEY-----"
    ),
}  # fmt: skip


# --- what is found in a text ---------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPED)
def test_a_key_is_known_by_its_looks(name: str) -> None:
    shown = Redactor({}).text(f"before {SHAPED[name]} after")
    assert shown == f"before [secret:{name}] after"
    assert Redactor({}, shapes=False).text(SHAPED[name]) == SHAPED[name]


def test_ordinary_text_stays_as_it_is() -> None:
    words = [
        TEXT,
        "sk-learn, sk-estimator-doc-link-hidden and task-based-something-with-hyphens",
        "hf_hub_download, ghp_, AKIA, xox, eyJ, glpat-, -----BEGIN PUBLIC KEY-----",
        "[secret:HF_TOKEN] was here before",
    ]
    redactor = Redactor({"A_KEY": "Tr0ub4dor&3-and-more"})
    assert [redactor.text(one) for one in words] == words


def test_every_value_is_found_once_whole_or_in_part() -> None:
    chance = random.Random(4)
    secrets = {f"S{n}_TOKEN": value for n, value in enumerate(made(200, 4))}
    redactor = Redactor(secrets)
    for name, value in secrets.items():
        around = TEXT[: chance.randrange(60)]
        once = redactor.text(f"{around}{value}\n{around}")
        assert once == f"{around}[secret:{name}]\n{around}"
        assert redactor.text(once) == once
        if len(value) > 16:
            for cut in (value[:-1], value[:16], value[1:], value[-16:], value[:20] + "…"):
                assert f"[secret:{name}]" in redactor.text(cut), (value, cut)
    everything = " ".join(secrets.values())
    assert not any(value in redactor.text(everything) for value in secrets.values())


def test_a_value_in_the_brackets_of_a_placeholder_is_none() -> None:
    redactor = Redactor({"A_KEY": "Tr0ub4dor-and-more", "TOKEN_KEY": "SHAPED_TOKEN"})
    for value in ("Tr0ub4dor-and-more", SHAPED["HF_TOKEN"], "x.Tr0ub4dor-and-more"):
        once = redactor.text(f"[secret:{value}]")
        assert value not in once
        assert redactor.text(once) == once
    assert redactor.text("[secret:A_KEY]") == "[secret:A_KEY]"
    mixed = "[secret:A_KEY] Tr0ub4dor-and-more " * 20_000  # in linear time, too
    assert redactor.text(mixed) == "[secret:A_KEY] [secret:A_KEY] " * 20_000


def test_forms_in_which_a_value_is_written() -> None:
    value = 'p@ss "word"/with\\ünder\nand a second line of it'
    redactor = Redactor({"DB_PASSWORD": value})
    for text in (value, json.dumps({"x": value}), "and a second line of it"):
        shown = redactor.text(text)
        assert "[secret:DB_PASSWORD]" in shown
        assert "second line" not in shown
    assert redactor.value({"a": [value, ("x", 7)], value: None}) == {
        "a": ["[secret:DB_PASSWORD]", ("x", 7)],
        "[secret:DB_PASSWORD]": None,
    }


@pytest.mark.parametrize(
    "around", [("", "\n"), ("", "\r\n"), ("\n", "\n"), ("  ", " "), ("\t", ""), ("", "\n" * 12)]
)
@pytest.mark.parametrize("value", [*made(3, 5), "Tr0ub4d0"])
def test_white_space_around_a_value_is_no_part_of_it(value: str, around: tuple[str, str]) -> None:
    """`export API_KEY="$(cat key; echo)"` keeps a newline that the program using it strips."""
    given = value.join(around)
    redactor = Redactor({"A_KEY": given})
    assert redactor.text(f"said {value} and\n{value}\nmore") == (
        "said [secret:A_KEY] and\n[secret:A_KEY]\nmore"
    )
    assert redactor.text(f"<{given}>") == "[secret:A_KEY]".join(around).join("<>")
    assert json.loads(redactor.text(json.dumps([given]))) == ["[secret:A_KEY]".join(around)]
    assert redactor.restored("[secret:A_KEY]") == given, "a task is given it as it is"


def test_which_variables_are_secret(tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    file.write_text("{}")
    environment = {
        "OPENAI_API_KEY": "a" * 20, "hf_token": "b" * 20, "GOOGLE_CREDENTIALS": str(file),
        "PATH": "/usr/bin", "MY_PIN": "c" * 20, "PUBLIC_KEY": "d" * 20, "EMPTY_KEY": "",
    }  # fmt: skip
    rules = SecretSettings(names=("MY_PIN",), ignore=("PUBLIC_KEY",))
    assert set(find_secret_values(environment, rules)) == {"OPENAI_API_KEY", "hf_token", "MY_PIN"}
    stored = {"AWS_ACCESS_KEY_ID": "e" * 20, "AWS_SECRET_ACCESS_KEY": "f" * 20}
    with_store = Configuration(artifacts=ArtifactSettings(url="s3://bucket/x"))
    assert set(find_secret_values(stored, secret_rules(with_store))) == set(stored)
    assert Redactor({"A_KEY": "x" * (MIN_SECRET_CHARACTERS - 1)}).names == ()
    assert Redactor({"A_KEY": "x" * (MIN_SECRET_CHARACTERS - 1) + "\n"}).names == ()


# --- the whole station ---------------------------------------------------------------------------

FROM_ENVIRONMENT = made(140, 1)
FROM_CONFIGURATION = made(40, 2)
NAMED = made(20, 3)
SECRETS = [*FROM_ENVIRONMENT, *FROM_CONFIGURATION, *NAMED]


class Echo(http.server.BaseHTTPRequestHandler):
    """A chat endpoint that refuses a key and quotes it."""

    def do_GET(self) -> None:
        if self.path.startswith("/shut/"):
            return self._refuse()
        self._answer(200, {"data": []})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._refuse()

    def _refuse(self) -> None:
        key = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self._answer(401, {"error": {"message": f"Incorrect API key provided: {key}."}})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        said = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def station(tmp_path: Path, endpoint: str) -> Iterator[Station]:
    made = Station(tmp_path)
    given = "\n".join(f'C{n}_TOKEN = "{v}"' for n, v in enumerate(FROM_CONFIGURATION))
    made.home.mkdir(mode=0o700)
    (made.home / "houston.toml").write_text(
        f"""
[secrets]
names = [{", ".join(f'"PIN_{n}"' for n in range(len(NAMED)))}]
[engines.refusing]
kind = "chat"
url = "{endpoint}"
model = "m"
api_key_env = "S0_KEY"
[engines.shut]
kind = "chat"
url = "{endpoint.replace("/v1", "/shut/v1")}"
model = "m"
api_key_env = "S0_KEY"
[engines.refusing.environment]
{given}
"""
    )
    kinds = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIALS")
    made.environment |= {f"S{n}_{kinds[n % 5]}": v for n, v in enumerate(FROM_ENVIRONMENT)}
    made.environment |= {f"PIN_{n}": v for n, v in enumerate(NAMED)}
    made.start()
    yield made
    made.clear()


def script(station: Station) -> str:
    """What an agent does with files that hold every secret; its own words hold none."""
    steps: list[dict[str, Any]] = [
        {"name": "run_command", "arguments": {"command": "cat secrets.txt"}},
        {"name": "run_command", "arguments": {"command": "python3 slow.py"}},
        {"name": "open_file", "arguments": {"path": "secrets.txt"}},
        {"name": "search_dir", "arguments": {"search_term": "value", "dir_path": "."}},
        {"name": "run_command", "arguments": {"command": "sed s/value/other/ secrets.txt > b.txt"}},
        {"name": "run_command", "arguments": {"command": "cat long.txt; env; ls"}},
        {"name": "open_file", "arguments": {"path": "no-such-file"}},
        {"name": "eval", "arguments": {}},
        {"name": "sleep", "arguments": {"sleep_time": 60}},
    ]
    calls = [{"thought": "look", "calls": [one]} for one in steps]
    return station.script(calls)


def test_no_door_lets_a_secret_in(station: Station) -> None:
    lines = "".join(f"value {n}: {one}\n" for n, one in enumerate(SECRETS))
    shaped = "".join(f"{value}\n" for value in SHAPED.values())
    slow = (
        "import time\n"
        f"for one in {SECRETS[:40]!r}:\n"
        "    print(one[:5], end='', flush=True); time.sleep(0.01); print(one[5:], flush=True)\n"
    )
    everything = " ".join(SECRETS) + "\n" + shaped
    evaluate = (
        "import json, sys\n"
        f"sys.stderr.write({everything!r})\n"
        f"print(json.dumps({{'overall_score': 3, 'said': {SECRETS[7]!r}}}))\n"
    )
    files = {
        "secrets.txt": lines + shaped,
        "slow.py": slow,
        "long.txt": "".join(f"{one} " * 200 + "\n" for one in SECRETS[:20]),
        f"{SECRETS[3]}.txt": "named after one\n",
    }
    told = f"Keep quiet about {everything * 12}".replace("\n", " ")  # long enough for a blob
    task = station.task(
        "secret", files=files, evaluate=evaluate, instructions=told, sandbox="bubblewrap"
    )
    (rollout,) = station.rollout(task, script(station))
    station.until(lambda: station.closed(rollout) >= 8, 60, "the steps")
    for text in SECRETS[:3]:
        station.run("guide", rollout, f"The key is {text}.")
    station.run("guide", rollout, "--wake", "All of them: " + everything)
    station.until(lambda: station.state(rollout) == "finished", 60, "its end")
    (refused,) = station.rollout(task, "refusing")
    station.until(lambda: station.state(refused) == "paused", 30, "it waits for its engine")
    (shown,) = station.json("rollout", "show", refused)
    assert "Incorrect API key provided: [secret:S0_KEY]" in shown["reason"]
    (ended,) = station.rollout(task, script(station))
    station.run("rollout", "cancel", ended, "--reason", f"because of {SECRETS[9]}")
    station.ended(ended, 30)
    outputs = [
        station.run(*words, "--json").stdout
        for words in (
            ("steps", rollout), ("context", rollout, "3"), ("rollout", "show", rollout),
            ("rollout", "show", refused), ("rollout", "show", ended),
            ("guidance", rollout), ("log",), ("log", "--audit"),
            ("tail", rollout), ("rollout", "list"), ("task", "list"), ("daemon", "status"),
            ("search", "value"),
        )
    ]  # fmt: skip
    assert "[secret:S0_KEY]" in outputs[0], "they were there, and were taken out"
    assert found(outputs) == []
    assert found([station.run("daemon", "logs").stdout]) == []
    assert stored(station) == []
    assert any((station.home / "blobs").glob("*/*"))
    station.stop()
    assert stored(station) == []
    assert indexed(station) == []


def test_what_an_endpoint_quotes_of_its_key_is_not_shown(station: Station) -> None:
    for words, code in (
        (("engine", "check", "refusing"), 1),
        (("engine", "check", "shut", "--json"), 1),
        (("rollout", "start", str(station.task()), "--engine", "shut"), 1),
        (("doctor",), None),
    ):
        said = station.run(*words, code=code)
        text = said.stdout + said.stderr
        assert "Incorrect API key provided: [secret:S0_KEY]" in text, text
        assert found([text]) == []


def test_a_task_gives_a_key_that_nobody_sees(station: Station) -> None:
    key = FROM_ENVIRONMENT[1]
    given = f'[environment_variables]\nA = "[secret:S1_TOKEN]"\nB = "{key}"'
    command = 'echo $(test "$A" = "$B"; echo $?) ${#A} $A'
    look = {"name": "run_command", "arguments": {"command": command}}
    engine = station.script([{"thought": "look", "calls": [look]}])
    (rollout,) = station.rollout(station.task(sampling=given), engine)
    station.ended(rollout, 60)
    (step, *_) = station.steps(rollout)
    assert f"0 {len(key)} [secret:S1_TOKEN]" in step["observation"]
    assert stored(station) == []


@pytest.mark.slow
def test_a_key_that_the_daemon_does_not_have_is_no_key(station: Station) -> None:
    """Its placeholder must not reach the agent's programs as if it were the key."""
    task = station.task("keyless", sampling='[environment_variables]\nA = "[secret:NO_SUCH_KEY]"')
    assert "NO_SUCH_KEY" in station.run("task", "validate", str(task)).stderr
    engine = station.script([{"thought": "look", "calls": []}])
    refused = station.run("rollout", "start", str(task), "--engine", engine, code=1)
    assert "no secret NO_SUCH_KEY" in refused.stderr
    written = f'[environment_variables]\nA = "{SHAPED["SK_KEY"]}"\n'
    task.write_text(f'name = "keyless"\ninstructions = "x"\n{written}')
    refused = station.run("rollout", "start", str(task), "--engine", engine, code=1)
    assert "names SK_KEY" in refused.stderr, "a key that is written out would not be stored"
    http = 'environment = "http"\n[http]\nurl = "http://127.0.0.1:9/"\napi_key_env = "NO_SUCH"\n'
    task.write_text(f'name = "keyless"\ninstructions = "x"\n{http}')
    refused = station.run("rollout", "start", str(task), "--engine", engine, code=1)
    assert "`http.api_key_env` of the task names NO_SUCH" in refused.stderr
    assert "keyless" not in station.run("rollout", "list").stdout


def test_doctor_counts_what_is_redacted_and_names_what_is_too_short() -> None:
    environment = {"A_KEY": "long enough", "B_KEY": "2short", "PATH": "/usr/bin"}
    assert too_short_secret_names(environment, SecretSettings()) == ["B_KEY"]
    assert too_short_secret_names({"C_KEY": "2short\n\n"}, SecretSettings()) == ["C_KEY"]
    assert too_short_secret_names(environment, SecretSettings(ignore=("B_KEY",))) == []


def test_files_of_the_home_are_its_owner_s_alone(station: Station) -> None:
    look = {"name": "run_command", "arguments": {"command": "ls"}}
    engine = station.script([{"thought": "look", "calls": [look]}])
    (rollout,) = station.rollout(station.task(), engine)
    station.ended(rollout, 60)
    # Who holds it, where its sockets are, the newest hash of the chain, the test's own settings.
    open_to_all = {"daemon.lock", "run.path", "chain.head", "houston.toml"}
    places = [file for file in station.home.rglob("*") if file.name not in open_to_all]
    wrong = {
        str(file.relative_to(station.home)): oct(file.stat().st_mode)
        for file in places
        if (file.is_dir() or file.is_file())
        and file.stat().st_mode & (0o077 if file.is_dir() else 0o177)
    }
    assert wrong == {}


def found(texts: list[str]) -> list[str]:
    return [one for text in texts for one in [*SECRETS, *SHAPED.values()] if one in text]


def stored(station: Station) -> list[str]:
    """Which secret stands in which file of the home; blobs as they are read."""
    home = Home(station.home)
    files = [file for file in station.home.rglob("*") if file.is_file()]
    assert {"houston.db", "search.db"} <= {file.name for file in files}
    hits = []
    for file in files:
        if file.name == "houston.toml":
            continue
        data = read_blob(home, file.stem) if home.blobs in file.parents else file.read_bytes()
        for one in [*SECRETS, *SHAPED.values()]:
            forms = {one, json.dumps(one)[1:-1]}
            hits += [f"{one} in {file.name}" for form in forms if form.encode() in (data or b"")]
    return hits


def indexed(station: Station) -> list[str]:
    """Which secrets the index would find: it holds words, not texts."""
    connection = sqlite3.connect(f"file:{station.home}/search.db?mode=ro", uri=True)
    match = "SELECT count(*) FROM entries WHERE entries MATCH ?"
    try:
        assert connection.execute(match, ('"secret S1 TOKEN"',)).fetchone()[0]
        words = [f'"{one}"' for one in SECRETS]
        return [one for one in words if connection.execute(match, (one,)).fetchone()[0]]
    finally:
        connection.close()
