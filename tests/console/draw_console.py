"""Draw the console on a made-up home.

Usage: `python -m tests.console.draw_console OUT [WIDTHxHEIGHT] [KEY…]`.

As the first KEY, `crowd` takes a home of eighteen rollouts, and begins where nobody names one. A
script for looking, not a test. Writes OUT.svg and OUT.png (cairosvg).
"""

import argparse
import asyncio
import os
import tempfile
from pathlib import Path

from houston_console.app.console_app import HoustonConsole
from houston_console.transcript.transcript_view import Transcript
from houston_shared.config import Configuration, LoadedConfiguration
from houston_shared.config_sections import ConsoleSettings
from houston_shared.records import FileChange, TerminalSpan
from tests.console import crowded_home
from tests.console.home_builder import HomeBuilder

_DIFF = """--- a/count.py
+++ b/count.py
@@ -3,7 +3,9 @@
 from collections import Counter

-words = open("corpus.txt").read().split()
+text = open("corpus.txt", encoding="utf-8").read().lower()
+words = re.findall(r"[a-z']+", text)
 counts = Counter(words)
+counts.pop("'", None)
 json.dump(counts.most_common(10), open("answer.json", "w"))
"""
_LOG = (
    b"\x1b]7771;p;\x07/workspace $ python3 count.py --check\r\n"
    b"reading corpus.txt \x1b[32mok\x1b[0m 84,213 words\r\n"
    b"pass 1/3  6,120 distinct  \x1b[2m1.1 s\x1b[0m\r\n"
    b"pass 2/3  5,872 distinct  \x1b[2m1.0 s\x1b[0m\r\n"
    b"\x1b[33mwarning:\x1b[0m 12 words hold an apostrophe only\r\n"
    b"pass 3/3  [#########           ]  45 %\rpass 3/3  [##################  ]  92 %"
)
_CHUNK = (
    b"\x1b]7771;p;\x07/workspace $ python3 count.py && head -3 answer.json\r\n"
    b"reading corpus.txt \x1b[32mok\x1b[0m 84,213 words\r\n"
    b'[\r\n  ["the", 5120],\r\n  ["and", 3044],\r\n'
    b"\x1b]7771;e;n;0\x07"
)
"""What every step prints."""
_THOUGHTS = (
    "Let me look at what is in the workspace before I write anything.",
    "The corpus has mixed case and punctuation, so splitting on spaces will miscount.",
    "I will write count.py with a regular expression and a Counter.",
    "Run it and look at the first lines of the answer.",
    "The evaluator wants lower-case words only; I should normalise before counting.",
)


def build(path: Path) -> HomeBuilder:
    """A home with a few tasks, one of them busy."""
    builder = HomeBuilder(path / "home")
    root = path / "host"
    with builder.bulk():
        builder.start("r-7f3a", "count-words", host_root=str(root))
        builder.start("r-81bc", "count-words")
        builder.start("r-90d2", "train-tokenizer", "Train a tokenizer.")
        builder.start("r-93e1", "train-tokenizer", "Train a tokenizer.", sandbox="none")
        builder.start("r-a004", "speed-up-attention", "Make it faster.")
        for other, steps, score in (("r-81bc", 41, 88.0), ("r-90d2", 118, 54.2), ("r-93e1", 12, 0)):
            for number in range(1, steps):
                builder.whole(other, number, "Working.", success=number % 9 != 0)
            if score:
                builder.scored(other, steps, "Try it.", score)
        builder.state("r-81bc", "finished", "worker")
        builder.state("r-90d2", "paused", "alice", "waits for data")
        builder.state("r-a004", "failed", "worker", "engine lost")
        for number in range(1, 61):
            _step(builder, "r-7f3a", number)
        builder.judged("r-7f3a", 46, 49, "mask", "Misspelt name, tried four times.", by="ada")
        builder.judged("r-7f3a", 57, 57, "keep", "Reads the evaluator first.", by="ada")
        reason = "The same call as in step 51, with the same result."
        builder.judged("r-7f3a", 52, 52, "mask", reason, by="judge", source="judge")
        why = "An edit without a look at the file in the step before."
        builder.judged("r-7f3a", 51, 51, "mask", why, by="blind_edit", source="rule")
        builder.judged("r-7f3a", 51, 51, "keep", "It had just written that file.", by="ada")
        builder.marked("r-7f3a", 43, "ben")
        builder.marked("r-7f3a", 50, "ada", "First score above 50: what changed is the regex.")
        builder.say("r-7f3a", "g3", "Back up what scored best before you try the next idea.")
        thought = "The check goes on; I will wait for it with sleep."
        builder.begin("r-7f3a", 61, thought, (("sleep", {"seconds": 600}),))
    builder.activity("r-7f3a", "sleep")
    folder = root / "rollouts" / "r-7f3a" / "terminals" / "main"
    folder.mkdir(parents=True)
    (folder / "log.0000000000000000").write_bytes(_CHUNK * 60 + _LOG)
    return builder


def _step(builder: HomeBuilder, rollout: str, number: int) -> None:
    thought = _THOUGHTS[number % len(_THOUGHTS)]
    if number == 23:
        builder.say(rollout, "g1", "Read evaluate.py before you submit again.")
    if number == 58:
        words = "The apostrophe counts as a letter here: keep “don't” as one word, and drop lone"
        builder.say(rollout, "g2", words + " apostrophes.", "bob", "wake")
    if number == 40:
        builder.fork_before(rollout, number, 20, "So far: counted words, scored 54.2.")
    if number % 8 == 3:
        text = "text = open('corpus.txt').read().lower()"
        edit = ("edit_file", {"path": "count.py", "start": 5, "end": 5, "text": text})
        change = FileChange(path="count.py", kind="changed", added=3, removed=1, diff=_DIFF)
        outputs = ("3 lines changed in count.py.",)
        builder.whole(rollout, number, thought, (edit,), outputs, files=(change,))
    elif number % 8 == 5:
        call = ("search_dir", {"query": "tokenize", "path": "."})
        result = {"kind": "search", "fields": {"query": "tokenize", "total_results": 3}}
        texts = ("3 files hold it:\ncount.py: 2\nevaluate.py: 1",)
        builder.whole(rollout, number, thought, (call,), texts, result=result)
    elif number % 11 == 7 or 46 <= number <= 49:
        call = ("run_command", {"command": "python3 cuont.py"})
        texts = ("python3: can't open file 'cuont.py': No such file or directory",)
        failed = {"fields": {"exit_code": 2, "error": "exit code 2"}}
        builder.whole(rollout, number, thought, (call,), texts, success=False, result=failed)
    elif number % 20 == 10:
        builder.scored(rollout, number, thought, 40 + number / 3)
    else:
        call = ("run_command", {"command": "python3 count.py && head -3 answer.json"})
        texts = ('[\n  ["the", 5120],\n  ["and", 3044],',)
        start, end = (number - 1) * len(_CHUNK), number * len(_CHUNK)
        spans = (TerminalSpan(host="local", terminal="main", start=start, end=end),)
        took = {"seconds": 3.4 + number % 3, "fields": {"exit_code": 0}}
        builder.whole(rollout, number, thought, (call,), texts, result=took, spans=spans)


async def picture(path: Path, out: Path, size: tuple[int, int], keys: list[str]) -> None:
    """Draw it after some keys."""
    many = keys[:1] == ["crowd"]
    keys = keys[many:]
    with crowded_home.build(path) if many else build(path) as builder:
        theme = os.environ.get("THEME", ConsoleSettings().theme)
        builder.home.configuration.write_text(f'[console]\ntheme = "{theme}"\n')
        loaded = LoadedConfiguration(
            Configuration(console=ConsoleSettings(theme=theme)), builder.home, "defaults"
        )
        depth = os.environ.get("DEPTH", "truecolor")
        app = HoustonConsole(loaded, "" if many else "r-7f3a", path / "state", depth=depth)
        async with app.run_test(size=size) as pilot:
            await app.refresh_from_store()
            await pilot.pause(0.5)
            for key in keys:
                await pilot.press(key)
                await pilot.pause(0.1)
            await app.query_one(Transcript).settle()
            await pilot.pause(0.3)
            svg = app.export_screenshot(title="houston console")
    out.with_suffix(".svg").write_text(svg, encoding="utf-8")
    import cairosvg

    svg = svg.replace("Fira Code", "DejaVu Sans Mono")
    cairosvg.svg2png(
        bytestring=svg.encode(), write_to=str(out.with_suffix(".png")), output_width=1800
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("rest", nargs="*", metavar="[WIDTHxHEIGHT] [KEY…]")
    arguments = parser.parse_args()
    keys, size = arguments.rest, (160, 50)
    if keys and "x" in keys[0] and keys[0][0].isdigit():
        width, _, height = keys.pop(0).partition("x")
        size = (int(width), int(height))
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(picture(Path(folder), arguments.out, size, keys))


if __name__ == "__main__":
    main()
