"""Draws docs/guidance.svg: somebody types, the agent hears it, the score rises.

`python -m tests.console.animation` (a part of `make pictures`). The console is the real one, with a
real recorder; the agent's steps are written for the picture. Frames are the console's own pictures,
joined by rows into one SVG that animates itself: a row that stays as it is stands in it once.
"""

import asyncio
import re
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from houston_console.app.console_app import without_remote_fonts
from houston_shared import records, wire
from tests.console.pictures import ROLLOUT, rest, sit_down
from tests.support.recorder_client import Worker

FILE = Path(__file__).parents[2] / "docs" / "guidance.svg"
SIZE = (120, 32)
WORDS = "Stop the check: line 12 of the corpus is broken. Clean it, then submit."
LINE_HEIGHT = 24.4
"""Of a row in Textual's pictures."""


class Frame(NamedTuple):
    """What is seen for some seconds."""

    svg: str
    seconds: float


class _Piece(NamedTuple):
    """What one row shows, from one moment to another (frames, the second not included)."""

    markup: str
    first: int
    end: int


def animate(frames: Sequence[Frame]) -> str:
    """One SVG that shows the frames in turn and begins again; the last one where nothing moves."""
    styles: dict[str, str] = {}
    rows = [_rows(frame.svg, styles) for frame in frames]
    pieces = [piece for row in sorted(set().union(*rows)) for piece in _pieces(row, rows)]
    always = [piece for piece in pieces if (piece.first, piece.end) == (0, len(frames))]
    others = [piece for piece in pieces if (piece.first, piece.end) != (0, len(frames))]
    spans = {(piece.first, piece.end): f"t{piece.first}-{piece.end}" for piece in others}
    moments = [sum(frame.seconds for frame in frames[:number]) for number in range(len(frames) + 1)]
    rules = [f".{name}{{{css}}}" for css, name in styles.items()]
    for (first, end), name in spans.items():
        rules.append(_timing(name, moments[first], moments[end], moments[-1]))
    body = [piece.markup for piece in always]
    body += [f'<g class="{spans[piece.first, piece.end]}">{piece.markup}</g>' for piece in others]
    head, chrome = _frame_of_window(frames[-1].svg)
    return (
        f"{head}<style>.m{{font:20px 'Fira Code','DejaVu Sans Mono',Menlo,Consolas,monospace;"
        "white-space:pre}.w{font:bold 18px arial}"
        + "".join(rules)
        + "@media(prefers-reduced-motion:reduce){g{animation:none!important}}</style>"
        + chrome
        + '<g class="m" transform="translate(9,41)">'
        + "".join(body)
        + "</g></svg>\n"
    )


def _rows(svg: str, styles: dict[str, str]) -> dict[int, str]:
    """The markup of each row of a picture; styles: names by CSS, which grows."""
    css = dict(re.findall(r"\.terminal-\d+-(r\d+) \{ (.*?) \}", svg))
    body = svg[svg.index("clip-terminal)") :]
    rows: dict[int, list[str]] = {}
    for rect in re.findall(r"<rect ([^>]*?)/?>", body):
        box = dict(re.findall(r'([\w-]+)="([^"]*)"', rect))
        row = round((float(box["y"]) - 1.5) / LINE_HEIGHT)
        rows.setdefault(row, []).append(
            f'<rect fill="{box["fill"]}" x="{box["x"]}" y="{row * LINE_HEIGHT + 1.5:.1f}"'
            f' width="{box["width"]}" height="24.7"/>'
        )
    for attributes, text in re.findall(r"<text ([^>]*)>(.*?)</text>", body, re.DOTALL):
        if not text.replace("&#160;", " ").strip():
            continue
        shown = dict(re.findall(r'([\w-]+)="([^"]*)"', attributes))
        row = round((float(shown["y"]) - 20) / LINE_HEIGHT)
        style = css[shown["class"].rpartition("-")[2]]
        name = styles.setdefault(style, f"r{len(styles) + 1}")
        rows.setdefault(row, []).append(
            f'<text class="{name}" x="{shown["x"]}" y="{row * LINE_HEIGHT + 20:.1f}"'
            f' textLength="{shown["textLength"]}">{text}</text>'
        )
    return {row: "".join(parts) for row, parts in rows.items()}


def _pieces(row: int, frames: Sequence[dict[int, str]]) -> Iterator[_Piece]:
    """What a row shows, one after the other."""
    first = 0
    for number in range(1, len(frames) + 1):
        if number == len(frames) or frames[number].get(row) != frames[first].get(row):
            if markup := frames[first].get(row, ""):
                yield _Piece(markup, first, number)
            first = number


def _timing(name: str, start: float, end: float, whole: float) -> str:
    """CSS by which a piece is seen from `start` to `end` seconds of `whole`."""
    visible, hidden = "{visibility:visible}", "{visibility:hidden}"
    at = [f"0%{visible if start == 0 else hidden}"]
    if start:
        at.append(f"{100 * start / whole:.2f}%{visible}")
    if end < whole:
        at.append(f"{100 * end / whole:.2f}%{hidden}")
    rest = "visible" if end == whole else "hidden"
    return (
        f".{name}{{visibility:{rest};animation:{name} {whole:g}s step-end infinite}}"
        f"@keyframes {name}{{{''.join(at)}}}"
    )


def _frame_of_window(svg: str) -> tuple[str, str]:
    """The opening tag, and the window with its title."""
    view = re.search(r'viewBox="[^"]*"', svg)
    assert view is not None
    chrome = svg[
        svg.index("</defs>") + len("</defs>") : svg.index('<g transform="translate(9, 41)')
    ]
    chrome = re.sub(r'class="terminal-\d+-title"', 'class="w"', re.sub(r"\s+", " ", chrome))
    return f'<svg {view[0]} xmlns="http://www.w3.org/2000/svg">', chrome.strip()


async def shoot(folder: Path) -> list[Frame]:
    """The frames: type, queued, heard, done, scored."""
    frames: list[Frame] = []
    async with sit_down(folder, ROLLOUT, SIZE) as (app, pilot, _, worker):

        def keep(seconds: float) -> None:
            svg = without_remote_fonts(app.export_screenshot(title="houston"))
            frames.append(Frame(svg, seconds))

        keep(1.6)
        await pilot.press("5")
        for word in WORDS.split():
            await pilot.press(*("full_stop" if key == "." else key for key in word), "space")
            await rest(pilot, 0.3)
            keep(0.22)
        await pilot.press("enter", "escape", "f")
        await rest(pilot)
        keep(1.4)
        for write, seconds in ((_end_the_sleep, 2.2), (_look, 1.4), (_clean, 1.4), (_submit, 4.0)):
            await asyncio.to_thread(write, worker)
            await rest(pilot)
            keep(seconds)
    return frames


def _end_the_sleep(worker: Worker) -> None:
    _acked(
        worker.intent(61),
        worker.result(61, text="Slept 600 s."),
        worker.observation(61, tail="[step 61 · active 31 min · 2 evaluations left]"),
    )


def _look(worker: Worker) -> None:
    thought = "The user says line 12 is broken: stop the check and look at it."
    command = {"command": "pkill -f check; sed -n 12p corpus.txt"}
    _whole(worker, 62, thought, "run_command", command, "command", "Th\\x00e cat sat \\x00on the")


def _clean(worker: Worker) -> None:
    thought = "NUL bytes split words. Drop them before counting."
    command = {"command": "tr -d '\\\\000' < corpus.txt > clean.txt && python3 count.py"}
    _whole(worker, 63, thought, "run_command", command, "command", "84,213 words")


def _submit(worker: Worker) -> None:
    fields = {"overall_score": 91.25, "state": "scored"}
    thought = "The counts agree now. Submit."
    _whole(worker, 64, thought, "submit", {}, "eval", "overall_score 91.25", fields)


def _whole(
    worker: Worker,
    step: int,
    thought: str,
    tool: str,
    arguments: dict[str, str],
    kind: str,
    text: str,
    fields: dict[str, object] | None = None,
) -> None:
    call = records.ToolCall(id=f"{step}.0", name=tool, arguments=arguments)
    intent = records.CallIntent(call=call)
    result = records.ToolResult(call=call, kind=kind, success=True, text=text, fields=fields or {})
    place = {"step": step, "attempt": 1, "index": 0}
    _acked(
        worker.sample(step, thought=thought, calls=(call,)),
        worker.say(wire.StoreIntent, **place, intent=intent),
        worker.say(wire.StoreResult, **place, result=result),
        worker.observation(step, tail=f"[step {step} · active 32 min · 1 evaluation left]"),
    )


def _acked(*replies: object) -> None:
    assert all(isinstance(reply, wire.Ack) for reply in replies), replies


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="houston-") as folder:
        frames = asyncio.run(shoot(Path(folder)))
    FILE.write_text(animate(frames), encoding="utf-8")


if __name__ == "__main__":
    main()
