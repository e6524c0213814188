"""`houston console [R]`: the annotators' screen; `--picture` writes what it shows as an SVG."""

import argparse
import asyncio
import gc
import os
import re
import sys
from pathlib import Path
from typing import get_args

from houston_console.headless import asking, options
from houston_shared import out
from houston_shared.config import Colors, Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader

SIZE = "160x50"
FPS = "240"
"""Drawings a second at most: 60, Textual's own, would hold a key's echo back for up to 17 ms."""
LOW_FPS = "8"
"""Drawings a second at most over a narrow line; a key is seen that much later."""


def arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout, under which name, or a picture."""
    parser.add_argument("rollout", nargs="?", default="", metavar="R", help="rollout to open")
    options.speaker(parser)
    parser.add_argument("--picture", metavar="FILE.svg", help="write a picture, open no screen")
    parser.add_argument(
        "--keymap", action="store_true", help="print every key, as a file to change yours in"
    )
    parser.add_argument(
        "--low-bandwidth", action="store_true", help="draw rarely and with few colours"
    )
    parser.add_argument(
        "--colors",
        choices=[name for name in get_args(Colors) if isinstance(name, str)],
        help="how many the terminal has, else [console] colors, which is read from TERM at first",
    )
    parser.add_argument("--size", default=SIZE, help=f"of the picture, default {SIZE}")
    parser.add_argument(
        "--keys", default="", metavar="KEYS", help='pressed before the picture, as in ": 6 enter"'
    )


def run(parsed: argparse.Namespace, loaded: Loaded) -> int:
    """Show the console until somebody leaves."""
    if parsed.keymap:
        return _print_keymap()
    # Textual reads it when it is imported.
    os.environ.setdefault("TEXTUAL_FPS", LOW_FPS if parsed.low_bandwidth else FPS)
    os.environ["TEXTUAL_COLOR_SYSTEM"] = "truecolor"  # nothing is rounded after our own filter
    _take_keys()
    rollout, name = _resolve(parsed.rollout, loaded), asking.speaker(parsed, loaded)
    wanted: Colors = parsed.colors or loaded.config.console.colors
    if parsed.picture:
        from houston_console.app.drawing.depth import chosen
        from houston_console.app.picture import draw

        path = Path(parsed.picture)
        keys = ["colon" if key == ":" else key for key in parsed.keys.split()]
        colours = chosen("truecolor" if wanted == "auto" else wanted, os.environ)
        asyncio.run(draw(loaded, rollout, path, _size(parsed.size), keys, name, colours))
        out.note(f"wrote {path}")
        return int(ExitCode.DONE)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise HoustonError(
            "The console needs a terminal, and this is none.",
            "Nothing was opened.",
            "houston tail, or houston console --picture FILE.svg",
            ExitCode.USAGE,
        )
    from houston_console.app.app import HoustonConsole
    from houston_console.app.drawing.depth import chosen

    colours = chosen(wanted, os.environ)
    app = HoustonConsole(loaded, rollout, low=parsed.low_bandwidth, name=name, depth=colours)
    calm()
    app.run()
    for offer in app.undoing.offers:
        if offer.act is not None:
            out.line(f"{offer.act.words} It stands; to undo it: {offer.act.command}")
    return app.return_code or int(ExitCode.DONE)


def _print_keymap() -> int:
    from houston_console.app.comfort.keymap import as_toml, own_file, own_keys

    for text in as_toml(own_keys(own_file())).splitlines():
        out.line(text)
    out.note(f"yours are read from {own_file()}")
    return int(ExitCode.DONE)


def _take_keys() -> None:
    """A person's own keys, before any widget is imported."""
    from houston_console.app import keys
    from houston_console.app.comfort.keymap import own_file, own_keys

    keys.use(own_keys(own_file()))


def calm() -> None:
    """Let full garbage collections be rare and look at little: each stopped the screen for 100 ms.

    What was imported lives as long as the process. The many small parts of drawn lines hold no
    cycles and are freed without a collection.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _resolve(name: str, loaded: Loaded) -> str:
    if not name:
        return ""
    with Reader(loaded.home) as reader:
        return reader.run(rollouts.resolve(name))


def _size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    known = all(re.fullmatch("[0-9]{1,4}", side) for side in (width, height))
    if not known or int(width) < 40 or int(height) < 12:
        raise HoustonError(
            f"{text!r} is no size of a screen.",
            "No picture was made.",
            f"--size {SIZE} (columns x lines, at least 40x12)",
            ExitCode.USAGE,
        )
    return int(width), int(height)
