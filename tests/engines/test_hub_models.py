"""Models of the hub by id: resolved once, fetched once, and every refusal said with what to do.

The real command and the real `huggingface_hub` against a server of the hub's API.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from houston_daemon.service.engine_child import engine_child_command
from houston_shared import hub_models
from houston_shared.config import load_configuration
from houston_shared.engine_settings import EngineSettings
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.home import Home
from houston_shared.hub_models import HubId, parse_hub_id
from tests.support.hub_server import TOKEN, HubServer
from tests.support.station import Station

ID = "acme/small"


@pytest.fixture(scope="module")
def server() -> Iterator[HubServer]:
    made = HubServer()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def hub(server: HubServer, tmp_path: Path) -> HubServer:
    """With one model of two commits' worth of files, and one that is gated, and one private."""
    server.models.clear()
    server.asked.clear()
    server.busy = False
    server.add(ID, write_model(tmp_path / "published"))
    server.add("acme/gated", tmp_path / "published", gated=True)
    server.add("acme/private", tmp_path / "published", private=True)
    return server


@pytest.fixture
def station(hub: HubServer, tmp_path: Path) -> Station:
    made = Station(tmp_path)
    made.home.mkdir()
    made.environment |= {
        "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path / "hf"), "HF_HUB_DISABLE_XET": "1",
    }  # fmt: skip
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
        made.environment.pop(name, None)
    return made


def write_model(folder: Path, content: str = "first") -> Path:
    """Files as a model's repository has them, weights in two forms; too small to compute with."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["X"], "note": content}))
    (folder / "tokenizer.json").write_text("{}")
    for name in ("model.safetensors", "consolidated.safetensors", "pytorch_model.bin"):
        (folder / name).write_bytes(content.encode())
    return folder


def fetch(station: Station, id: str, code: int | None = None) -> str:
    """What `doctor --fetch-model` says on stderr."""
    return station.run("doctor", "--fetch-model", id, code=code).stderr


def pins(station: Station) -> dict[str, hub_models.HubPin]:
    return hub_models.read_pins(Home(station.home))


def use(station: Station, base: str, code: int | None = 69) -> str:
    """What a command says that needs a model, and then fails for want of a daemon."""
    return station.run("policy", "import", "nothing", "--base", base, code=code).stderr


@pytest.mark.parametrize(
    ("text", "id"),
    [
        pytest.param("Qwen/Qwen3-8B", HubId("Qwen/Qwen3-8B", "main"), id="no revision"),
        pytest.param("acme/m@v1.0", HubId("acme/m", "v1.0"), id="a tag"),
        pytest.param("acme/m@refs/pr/3", HubId("acme/m", "refs/pr/3"), id="a pull request"),
        pytest.param("/models/m", None, id="an absolute path"),
        pytest.param("./models/m", None, id="a path from here"),
        pytest.param("a/b/c", None, id="a deeper path"),
        pytest.param("policy@2", None, id="a policy"),
        pytest.param("small", None, id="one word"),
        pytest.param("acme/m@", None, id="an empty revision"),
    ],
)
def test_what_is_an_id(text: str, id: HubId | None) -> None:
    assert parse_hub_id(text) == id


def test_an_id_is_resolved_once_and_stays_that_commit(
    hub: HubServer, station: Station, tmp_path: Path
) -> None:
    use(station, ID)
    first = pins(station)[f"{ID}@main"]
    assert first.commit == hub.models[ID].refs["main"]
    assert hub_models.hub_origin(first.folder) == f"{ID}@{first.commit}"
    files = {file.name for file in Path(first.folder).iterdir()}
    assert files == {"config.json", "tokenizer.json", "model.safetensors"}

    hub.add(ID, write_model(tmp_path / "published", "second"))
    asked = len(hub.asked)
    said = use(station, ID)
    assert "fetching" not in said and hub.asked[asked:] == []
    assert pins(station)[f"{ID}@main"] == first

    assert "fetching acme/small" in fetch(station, ID)
    assert pins(station)[f"{ID}@main"].commit == hub.models[ID].refs["main"] != first.commit


def test_a_lost_cache_is_filled_with_the_same_commit(
    hub: HubServer, station: Station, tmp_path: Path
) -> None:
    use(station, ID)
    first = pins(station)[f"{ID}@main"]
    hub.add(ID, write_model(tmp_path / "published", "second"))
    for file in Path(first.folder).iterdir():
        file.unlink()
    use(station, ID)
    assert pins(station)[f"{ID}@main"] == first
    assert (Path(first.folder) / "model.safetensors").read_bytes() == b"first"


def test_what_is_in_the_cache_needs_no_network(hub: HubServer, station: Station) -> None:
    use(station, ID)
    commit = pins(station)[f"{ID}@main"].commit
    hub_models.pins_file(Home(station.home)).unlink()
    station.environment["HF_HUB_OFFLINE"] = "1"
    use(station, f"{ID}@{commit}")
    said = use(station, ID, code=None)
    assert "HF_HUB_OFFLINE is set" in said  # which commit `main` is, the cache does not know


def test_a_folder_of_that_name_wins_and_is_said(hub: HubServer, station: Station) -> None:
    (station.folder / "acme").mkdir()
    here = write_model(station.folder / ID)
    said = use(station, ID)
    assert f"{ID} is {here}; the hub was not asked." in said
    assert hub.asked == []


SLOW = pytest.mark.slow
NOBODY = "http://127.0.0.1:9"
REFUSALS = [
    pytest.param(
        ID, {"HF_HUB_OFFLINE": "1"}, 78, "HF_HUB_OFFLINE is set", "unset", id="offline", marks=SLOW
    ),
    pytest.param(
        "acme/none", {}, 1, "has no model acme/none", "hf auth login", id="unknown", marks=SLOW
    ),
    pytest.param(f"{ID}@v9", {}, 1, "has no revision 'v9'", "/acme/small/commits", id="revision"),
    pytest.param("acme/gated", {}, 1, "is gated", "Ask for access at", id="gated"),
    pytest.param("acme/private", {}, 1, "has no model", "hf auth login", id="private", marks=SLOW),
    pytest.param(ID, {"HF_TOKEN": "hf_wrong"}, 1, "rejects the token", "hf auth", id="token"),
    pytest.param(
        ID, {"HF_ENDPOINT": NOBODY}, 1, "does not answer", "the network", id="nobody", marks=SLOW
    ),
    pytest.param("small", {}, 78, "'small' is not a hub id", "org/name", id="no id", marks=SLOW),
]


@pytest.mark.parametrize(("id", "environment", "code", "cause", "next"), REFUSALS)
def test_a_refusal_is_one_sentence_and_loses_nothing(
    station: Station, id: str, environment: dict[str, str], code: int, cause: str, next: str
) -> None:
    before = {f"{ID}@main": hub_models.HubPin("0" * 40, "/nowhere")}
    hub_models.pins_file(Home(station.home)).write_bytes(msgspec.json.encode(before))
    station.environment |= environment
    lines = fetch(station, id, code=code).splitlines()
    said, then = [line for line in lines if not line.startswith("fetching")]
    assert said.startswith("houston: ") and "bug in Houston" not in said
    assert cause in said and next in then
    assert pins(station) == before


def test_a_busy_hub_says_when_to_come_again(hub: HubServer, station: Station) -> None:
    hub.busy = True
    said = fetch(station, ID, code=int(ExitCode.BUSY))
    assert "accepts no more requests" in said and "in 0 s" in said


def test_a_private_model_is_fetched_with_a_token(station: Station) -> None:
    station.environment["HF_TOKEN"] = TOKEN
    use(station, "acme/private")
    assert "acme/private@main" in pins(station)


def test_a_repository_without_a_model_is_refused(hub: HubServer, station: Station) -> None:
    (station.folder / "empty").mkdir()
    (station.folder / "empty" / "README.md").write_text("nothing")
    hub.add("acme/empty", station.folder / "empty")
    assert "holds no model: config.json is missing" in fetch(station, "acme/empty", code=1)
    for name in ("config.json", "tokenizer.json", "model.Q4.gguf"):
        (station.folder / "empty" / name).write_text("{}")
    hub.add("acme/other-weights", station.folder / "empty")
    assert "no weights as safetensors or .bin" in fetch(station, "acme/other-weights", code=1)
    assert pins(station) == {}, "no command takes it for fetched"


ENGINES = """
[engines.ours]
kind = "embedded"
model = "acme/small"

[engines.far]
kind = "token"
url = "http://127.0.0.1:1/v1"
model = "acme/small"
tokenizer = "acme/small@main"

[engines.paid]
kind = "chat"
url = "http://127.0.0.1:1/v1"
model = "acme/small"
"""


def test_engines_find_what_was_fetched(hub: HubServer, station: Station) -> None:
    """A child has the folder of its model, an engine at a URL that of its tokenizer; the names that
    servers are asked for stay names."""
    (station.home / "houston.toml").write_text(ENGINES)
    before = load_configuration(str(station.home), environment={})
    assert before.engine("ours").model == "acme/small@main"
    with pytest.raises(HoustonError, match="acme/small of the hub, is not on this machine"):
        engine_child_command("ours", before.engine("ours"), 1)

    use(station, ID)
    (found,) = [row for row in station.json("doctor") if row["check"] == "hub"][:1]
    assert found["state"] == "ok" and f"tokenizer of far: {ID}@" in found["found"]
    loaded = load_configuration(str(station.home), environment={})
    folder = pins(station)[f"{ID}@main"].folder
    assert loaded.engine("ours").model == folder
    assert folder in engine_child_command("ours", loaded.engine("ours"), 1)
    far = loaded.engine("far")
    assert (far.model, far.tokenizer) == ("acme/small", folder)
    assert loaded.engine("paid").model == "acme/small"


def test_an_engine_that_waits_finds_its_model_once_it_is_fetched(
    hub: HubServer, station: Station, tmp_path: Path
) -> None:
    """By the id of the configuration, or by the commit that it had before its cache was lost."""
    use(station, ID)
    pin = pins(station)[f"{ID}@main"]
    for name in (f"{ID}@main", f"{ID}@{pin.commit}"):
        waiting = EngineSettings(kind="embedded", model=name)
        assert hub_models.with_hub_folders(waiting, Home(station.home)).model == pin.folder
    other = EngineSettings(kind="embedded", model=f"{ID}@{'0' * 40}")
    assert hub_models.with_hub_folders(other, Home(station.home)) == other


def test_a_tokenizer_alone_is_fetched_without_weights(hub: HubServer, station: Station) -> None:
    words = ["export", "x", "--format", "raw", "--tokenizer", ID]
    assert "fetching acme/small" in station.run(*words, code=None).stderr
    folder = Path(pins(station)[f"{ID}@main"].folder)
    assert {file.name for file in folder.iterdir()} == {"config.json", "tokenizer.json"}
    (station.home / "houston.toml").write_text(ENGINES)
    loaded = load_configuration(str(station.home), environment={})
    commit = pins(station)[f"{ID}@main"].commit
    assert loaded.engine("ours").model == f"{ID}@{commit}"  # still to be fetched, at that commit
