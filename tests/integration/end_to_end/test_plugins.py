"""The manual's plug-in, exactly as it stands there, is installed and runs; broken ones are said."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.station import Station

MANUAL = (Path(__file__).parents[3] / "docs" / "extending.md").read_text()
PACKAGE, ENGINE, *_ = re.findall(r"```toml\n(.*?)```", MANUAL, re.DOTALL)
(CODE,) = re.findall(r"```python\n(.*?)```", MANUAL, re.DOTALL)
TASK = """
name = "coin"
instructions = "Guess."
environment = "{environment}"
[settings]
sides = ["{side}", "{side}"]
[attention]
signals = [{signal}]
[rules]
packages = ["lost"]
"""


def install(folder: Path, package: str, code: str) -> None:
    """Lay a package where Python finds it, as pip does (entry points, metadata, module)."""
    project = tomllib.loads(package)["project"]
    points = project["entry-points"]
    (module,) = {value.partition(":")[0] for group in points.values() for value in group.values()}
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    head = "Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(head.format(**project))
    lines = [f"[{group}]\n" + "".join(f"{n} = {v}\n" for n, v in of.items())
             for group, of in points.items()]  # fmt: skip
    (info / "entry_points.txt").write_text("\n".join(lines))


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    made = Station(tmp_path)
    packages = tmp_path / "packages"
    packages.mkdir()
    install(packages, PACKAGE, CODE)
    broken = PACKAGE.replace("coin", "broken").replace("dice", "bad").replace("bad_luck", "omen")
    broken = broken.replace("lost", "gone")
    install(packages, broken, "import no_such_library_here\n")
    made.environment["PYTHONPATH"] = str(packages)
    configuration = ENGINE + ENGINE.replace("dice", "bad")
    (made.folder / "houston.toml").write_text(configuration)
    made.environment["HOUSTON_CONFIG"] = str(made.folder / "houston.toml")
    yield made
    made.clear()


def test_a_daemon_without_the_package_waits_for_a_person(station: Station) -> None:
    here = station.environment.pop("PYTHONPATH")
    del station.environment["HOUSTON_CONFIG"]
    (station.folder / "houston.toml").unlink()
    station.start()
    station.environment["PYTHONPATH"] = here
    words = ["rollout", "start", task(station, "coin"), "--engine", station.script([{}])]
    (row,) = station.json(*words)

    def paused() -> bool:
        return bool(station.json("rollout", "show", row["rollout"])[0]["state"] == "paused")

    station.until(paused, why="the worker has looked")
    (record,) = station.json("rollout", "show", row["rollout"])
    assert "no environment 'coin'; there are: " in record["reason"]
    assert record["paused_by"] == "host" and "workstation" in record["reason"]


def task(station: Station, environment: str, side: str = "heads", signal: str = "") -> str:
    file = station.folder / f"{environment}-{side}.toml"
    file.write_text(TASK.format(environment=environment, side=side, signal=signal))
    return str(file)


@pytest.mark.slow
def test_the_manuals_environment_and_engine_run(station: Station) -> None:
    assert len(CODE.splitlines()) < 64
    station.start()
    (row,) = station.json("rollout", "start", task(station, "coin"), "--engine", "dice")
    assert station.ended(row["rollout"])["state"] == "finished"
    (step,) = station.steps(row["rollout"])
    assert step["thought"] == "I throw." and step["observation"].startswith("Right.")
    assert station.query("SELECT best_score FROM rollouts") == [(100.0,)]
    (head,) = station.json("context", row["rollout"], "1")
    assert "Sides: ['heads', 'heads']" in head["rendered"]

    (lost,) = station.json(
        "rollout", "start", task(station, "coin", "tails", '"bad_luck"'), "--engine", "dice"
    )
    assert station.ended(lost["rollout"])["state"] == "finished"
    assert [one["attention"] for one in station.steps(row["rollout"])] == [[]]
    assert "bad_luck" in station.steps(lost["rollout"])[0]["attention"]
    station.run("judge", row["rollout"], lost["rollout"], "--rules-only")
    assert station.json("verdict", row["rollout"]) == []
    (masked,) = station.json("verdict", lost["rollout"])
    assert masked["reason"] == "lost@1: it lost"
    station.run("verdict", lost["rollout"], "1", "mask")
    compared = {row["source"]: row for row in station.json("judge", "--calibrate")}
    assert compared["lost@1"]["both_mask"] == 1, "a package's rule is measured like Houston's own"
    said = station.run("rollout", "show", row["rollout"]).stdout
    assert "100 at step 1\n" in said, "a score that used a submission"
    for name, why in (("luck", "there are: "), ("error", "built into Houston")):
        wrong = task(station, "coin", "tails", f'"{name}"')
        assert why in station.run("task", "validate", wrong, code=78).stderr

    none = station.run("task", "validate", task(station, "coinn"), code=78)
    for name in ("workstation", "search_qa", "python", "http", "mcp", "coin"):
        assert name in none.stderr
    for words in (
        ["task", "validate", task(station, "broken")],
        ["rollout", "start", task(station, "coin"), "--engine", "bad"],
    ):
        said = station.run(*words, code=78).stderr
        assert "houston-broken) cannot be imported: ModuleNotFoundError" in said, said
