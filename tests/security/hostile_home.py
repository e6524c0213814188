"""A home in which everything that can hold text holds payloads."""

from collections.abc import Iterator, Sequence
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from houston_shared.home import Home
from houston_shared.records import FileChange, TerminalSpan
from tests.console.home_builder import HomeBuilder
from tests.security.payloads import KNOWN, Payload, corpus

FLOOD = "flood"
"""The rollout whose observations hold the whole corpus."""
LONG = "long"
"""The rollout with one line of a megabyte."""
A_STEP = 200
NAMES = 40
"""Rollouts that are named after payloads."""
MEGABYTE = "m" * 500_000 + "\x1b[8m\u202e" + "e" * 500_000


def write(folder: Path) -> tuple[Home, Sequence[Payload]]:
    """Write it; returns the home and the payloads."""
    payloads = corpus()
    with HomeBuilder(folder / "home") as builder:
        with builder.bulk():
            _flood(builder, payloads, folder / "host")
            _named(builder, [one.text for one in payloads[: 8 * len(KNOWN) : 8]])
            builder.start(LONG, "long", instructions=MEGABYTE[:5000])
            builder.whole(LONG, 1, MEGABYTE, texts=(MEGABYTE,))
        home = builder.home
    home.logs.mkdir(parents=True, exist_ok=True)
    (home.logs / "daemon.log").write_bytes(raw(payloads))
    return home, payloads


def raw(payloads: Sequence[Payload]) -> bytes:
    """The corpus as bytes of a log, C1 also as single bytes, with invalid UTF-8 and NUL."""
    lines = [one.text.encode() for one in payloads]
    lines += [
        one.mark.encode() + one.text[7:].encode("latin-1", "replace") for one in payloads[::7]
    ]
    return b"\n".join([*lines, b"\xff\xfe\x00\xc0\xaf \xed\xa0\x80 \xf5\x80\x80\x80", b""])


def _flood(builder: HomeBuilder, payloads: Sequence[Payload], host: Path) -> None:
    builder.start(
        FLOOD, "flooded \x1b]0;task\x07", instructions=payloads[0].text, host_root=str(host)
    )
    text = cycle(one.text for one in payloads)
    for step, start in enumerate(range(0, len(payloads), A_STEP), 1):
        shown = "\n".join(one.text for one in payloads[start : start + A_STEP])
        builder.say(FLOOD, f"g{step}", next(text), author=next(text)[:30])
        arguments = {next(text)[:25]: next(text), "n": [next(text), 1, {"k": next(text)}]}
        change = FileChange(
            path=next(text)[:50], kind="changed", added=1, removed=1, note=next(text),
            diff=f"@@ -1 +1 @@\n-{next(text)}\n+{next(text)}",
        )  # fmt: skip
        builder.whole(
            FLOOD, step, next(text), ((next(text)[:40], arguments),), (shown,),
            files=(change,), attention=(next(text)[:20],),
            spans=(TerminalSpan(host=next(text)[:20], terminal=next(text)[:20], start=0, end=9),),
        )  # fmt: skip
    terminal = host / "rollouts" / FLOOD / "terminals" / "a\x1b]0;name\x07"
    terminal.mkdir(parents=True)
    (terminal / "log.0000000000000000").write_bytes(raw(payloads)[-60_000:])


def _named(builder: HomeBuilder, texts: Sequence[str]) -> None:
    """Rollouts and tasks with hostile names, states, reasons, policies, summaries."""
    states: Iterator[Any] = cycle(("failed", "paused", "cancelled", "finished", "running"))
    for at, text in enumerate(islice(cycle(texts), NAMES)):
        name = f"{at:02}{text[:60]}".replace("/", "|")
        builder.start(name, f"t{at:02}{text[7:60]}", instructions=text)
        builder.begin(
            name, 1, text, ((text[:30], {"query": text}),), malformed=text, drift="forked"
        )
        builder.fork_before(name, 2, 1, text)
        builder.whole(name, 2, text, (("search_dir", {"q": text}),), (text,), success=False)
        builder.say(name, f"q{at}", text, author=text[:40])
        builder.activity(name, text)
        builder.state(name, next(states), f"person:{text[:20]}", text)
