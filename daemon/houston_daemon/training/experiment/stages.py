"""The stages of a run on disk: what is done is not done again, also after a kill.

A stage's result is a JSON file, written whole at its end with the seconds it took. What a stage has
begun (rollouts, by a key of its own) is written as it goes, so that it is found again.
"""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from houston_daemon.training.experiment.own_home import Spoiled
from houston_shared import synced_file

Result = dict[str, Any]


class Stages:
    """The folder `stages/` of a run."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._say = say
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, name: str, what: Callable[["Begun"], Mapping[str, Any]]) -> Result:
        """The result of a stage: kept, or made now by `what`, which is given what was begun."""
        if (done := self.done(name)) is not None:
            return done
        self._say(f"{name} …")
        begun = Begun(self._folder / f"{name}.begun.json")
        at = time.monotonic()
        try:
            result = dict(what(begun))
        except Spoiled:
            begun.forget()
            raise
        result["seconds"] = round(begun.seconds() + time.monotonic() - at, 1)
        synced_file.write(self._folder / f"{name}.json", _json(result))
        self._say(f"{name}: {result['seconds']:.0f} s")
        return result

    def kept(self, name: str, make: Callable[[], Result]) -> Result:
        """Something that the whole run uses: what was kept, or what `make` gives now."""
        file = self._folder / f"{name}.kept.json"
        if not file.is_file():
            synced_file.write(file, _json(make()))
        found: Result = json.loads(file.read_text(encoding="utf-8"))
        return found

    def seconds(self) -> dict[str, float]:
        """How long each stage took, in the order in which they ended."""
        files = [
            file
            for file in self._folder.glob("*.json")
            if not file.name.endswith((".begun.json", ".kept.json"))
        ]
        files.sort(key=lambda file: file.stat().st_mtime_ns)
        return {file.stem: json.loads(file.read_bytes())["seconds"] for file in files}

    def done(self, name: str) -> Result | None:
        """The result of a stage; None while it is not over."""
        file = self._folder / f"{name}.json"
        if not file.is_file():
            return None
        found: Result = json.loads(file.read_text(encoding="utf-8"))
        return found


class Begun:
    """What a stage has begun, by key; safe against kills, not for several threads."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.goes_on = file.is_file()
        """Whether an earlier run began something of the stage."""
        there = json.loads(file.read_text(encoding="utf-8")) if self.goes_on else {}
        self._known: dict[str, Any] = there.get("known", {})
        self._spent = float(there.get("seconds", 0.0))
        self._at = time.monotonic()

    def get(self, key: str, make: Callable[[], Any]) -> Any:
        """What `key` stands for; made now, and kept, where it is not known."""
        if key not in self._known:
            self.put(key, make())
        return self._known[key]

    def put(self, key: str, value: Any) -> None:
        """Keep what `key` stands for from now on."""
        self._known[key] = value
        spent = self._spent + time.monotonic() - self._at
        kept = {"known": self._known, "seconds": round(spent, 1)}
        synced_file.write(self._file, _json(kept))

    def forget(self) -> None:
        """Begin anew next time."""
        self._file.unlink(missing_ok=True)

    def seconds(self) -> float:
        """What runs before this one have spent on the stage, up to what they last began."""
        return self._spent


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode()
