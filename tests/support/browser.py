"""A real browser without a screen: Chromium, spoken to in its DevTools protocol over two pipes."""

import itertools
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find_browser() -> str | None:
    """Its path; None where none is installed."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    """One page at a time; `close` ends it."""

    def __init__(self, program: str, folder: Path) -> None:
        """folder: for its profile."""
        to_read, self._write = os.pipe()
        self._read, to_write = os.pipe()
        flags = "--headless=new --no-sandbox --disable-gpu --no-first-run --disable-extensions"
        words = f"exec {program} {flags} --user-data-dir={folder} --remote-debugging-pipe"
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", f"{words} about:blank 3<&{to_read} 4>&{to_write}"],
            pass_fds=(to_read, to_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_read)
        os.close(to_write)
        self._rest = b""
        self._numbers = itertools.count(1)
        self._session = ""
        self.events: list[dict[str, Any]] = []
        """What it said by itself."""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        attached = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """A command, and what it returns."""
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next_message()
            if answer.get("id") == number:
                assert "error" not in answer, answer
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def open(self, file: Path, anchor: str = "") -> None:
        """Show a file, until all of it has run."""
        self.events.clear()
        self.ask("Page.navigate", url=f"{file.as_uri()}{anchor}")
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next_message())

    def evaluate(self, expression: str) -> Any:
        """The value of a piece of JavaScript in the page; promises are waited for."""
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        answer = self.ask("Runtime.evaluate", **asked)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def told(self, method: str) -> list[dict[str, Any]]:
        """What it said of one kind since the page was opened."""
        self.evaluate("new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
        return [event["params"] for event in self.events if event.get("method") == method]

    def close(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()
        os.close(self._read)
        os.close(self._write)

    def _next_message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._read, 1 << 20)
            assert data, "the browser has gone"
            self._rest += data
        raw, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        return message
