"""The command `houston console [R]`, or `R@STEP`.

Parses its options, sets what Textual reads from the environment, takes the person's own keys, and
then either runs the app or writes an SVG screenshot. Textual is imported only inside
`run_console`, after the keys are in force, because widgets take their bindings when they are
imported. What the app does is in `app.console_app`.
"""

import argparse
import asyncio
import gc
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from houston_console.commands import command_options, daemon_requests, person_names
from houston_shared import command_arguments, command_output, secret_redaction
from houston_shared.config import LoadedConfiguration
from houston_shared.config_sections import ColorChoice
from houston_shared.errors import ExitCode, NotFound, UsageError
from houston_shared.store import rollout_queries, store_reader
from houston_shared.store.store_reader import Reader

if TYPE_CHECKING:
    from houston_console.app.terminal_query import TerminalAnswer

DEFAULT_SCREENSHOT_SIZE = "160x50"
MAX_FPS = "240"
"""Drawings a second at most: 60, Textual's own, would hold a key's echo back for up to 17 ms."""
LOW_BANDWIDTH_FPS = "8"
"""Drawings a second at most over a narrow line; a key is seen that much later."""


def add_console_arguments(parser: argparse.ArgumentParser) -> None:
    """Which rollout, under which name, or a picture."""
    parser.add_argument(
        "rollout", nargs="?", default="", metavar="R", help="rollout to open; R@STEP: at a step"
    )
    command_options.add_speaker_option(parser)
    parser.add_argument("--picture", metavar="FILE.svg", help="write a picture, without a screen")
    parser.add_argument(
        "--keymap", action="store_true", help="print all keys as a file that you can edit"
    )
    parser.add_argument(
        "--low-bandwidth", action="store_true", help="draw rarely and with few colours"
    )
    parser.add_argument(
        "--colors",
        choices=[name for name in get_args(ColorChoice) if isinstance(name, str)],
        help="how many the terminal has; default: [console] colors (auto: ask the terminal)",
    )
    parser.add_argument(
        "--size",
        default=DEFAULT_SCREENSHOT_SIZE,
        help=f"size of the picture ({DEFAULT_SCREENSHOT_SIZE})",
    )
    parser.add_argument(
        "--keys",
        default="",
        metavar="KEYS",
        help='keys to press before the picture, such as ": 6 enter"',
    )


def run_console(parsed: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Show the console until somebody leaves."""
    if parsed.keymap:
        return _print_keymap()
    secret_redaction.install_secrets(loaded.config)  # for what is read from logs of terminals
    # Textual reads it when it is imported.
    os.environ.setdefault("TEXTUAL_FPS", LOW_BANDWIDTH_FPS if parsed.low_bandwidth else MAX_FPS)
    os.environ["TEXTUAL_COLOR_SYSTEM"] = "truecolor"  # nothing is rounded after our own filter
    _apply_personal_keymap()
    rollout = _resolve_place(parsed.rollout, loaded)
    name = daemon_requests.claimed_name(parsed, loaded)
    colors: ColorChoice = parsed.colors or loaded.config.console.colors
    if parsed.picture:
        return _write_picture(parsed, loaded, rollout, name, colors)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "The console needs a terminal, and this is not one.",
            "Nothing was opened.",
            "houston tail, or houston console --picture FILE.svg",
        )
    _confirm_claimed_name(parsed, loaded)
    return _open_console(parsed, loaded, rollout, name, colors)


def _open_console(
    parsed: argparse.Namespace,
    loaded: LoadedConfiguration,
    rollout: str,
    name: str,
    colors: ColorChoice,
) -> int:
    """Ask the terminal what it can, and show the screens until somebody leaves."""
    answer = _ask_terminal(colors)
    from houston_console.app.console_app import HoustonConsole
    from houston_console.app.terminal_driver import SafeDriver
    from houston_console.widgets.ascii_marks import takes_utf8
    from houston_console.widgets.color_themes import choose_color_depth

    depth = choose_color_depth(colors, os.environ, answer.colors)
    ascii_only = not (takes_utf8(os.environ) if answer.utf8 is None else answer.utf8)
    SafeDriver.typed_ahead = answer.typed
    app = HoustonConsole(
        loaded,
        rollout,
        low=parsed.low_bandwidth,
        name=name,
        depth=depth,
        ascii_only=ascii_only,
    )
    tune_garbage_collector()
    app.run()
    for offer in app.undo_offers.offers:
        if offer.action is not None:
            command_output.print_line(
                f"{offer.action.text} It stands; to undo it: {offer.action.undo_command}"
            )
    return app.return_code or int(ExitCode.DONE)


def _confirm_claimed_name(parsed: argparse.Namespace, loaded: LoadedConfiguration) -> None:
    """A slip in `--as` makes another person, who has seen nothing and is handed nothing. Raises
    HoustonError (2) for one."""
    if parsed.claimed and store_reader.has_database(loaded.home):
        with Reader(loaded.home) as reader:
            person_names.confirm_name(
                reader, parsed.claimed, "Nothing was opened.", "houston console --as NAME"
            )


def _ask_terminal(colors: ColorChoice) -> "TerminalAnswer":
    """Ask the terminal where neither the person nor the environment says how it is."""
    from houston_console.app.terminal_query import NO_ANSWER, ask_terminal
    from houston_console.widgets.ascii_marks import takes_utf8
    from houston_console.widgets.color_themes import detect_color_depth

    is_depth_known = not os.environ.get("TMUX") and detect_color_depth(os.environ) in (
        "truecolor",
        "none",
    )
    if (colors != "auto" or is_depth_known) and takes_utf8(os.environ):
        return NO_ANSWER
    return ask_terminal(sys.stdin.fileno(), os.environ)


def _write_picture(
    parsed: argparse.Namespace,
    loaded: LoadedConfiguration,
    rollout: str,
    name: str,
    colors: ColorChoice,
) -> int:
    from houston_console.app.console_app import write_screenshot
    from houston_console.widgets.color_themes import choose_color_depth

    path, size = Path(parsed.picture), _parse_screen_size(parsed.size)
    keys = ["colon" if key == ":" else key for key in parsed.keys.split()]
    depth = choose_color_depth("truecolor" if colors == "auto" else colors, os.environ)
    asyncio.run(write_screenshot(loaded, rollout, path, size, keys, name, depth))
    command_output.print_note(f"wrote {path}")
    return int(ExitCode.DONE)


def _print_keymap() -> int:
    from houston_console.app.key_bindings import keymap_path, keymap_toml, load_keymap

    for text in keymap_toml(load_keymap(keymap_path())).splitlines():
        command_output.print_line(text)
    command_output.print_note(f"yours are read from {keymap_path()}")
    return int(ExitCode.DONE)


def _apply_personal_keymap() -> None:
    """A person's own keys, before any widget is imported."""
    from houston_console.app import key_bindings
    from houston_console.app.key_bindings import keymap_path, load_keymap

    key_bindings.set_active_keys(load_keymap(keymap_path()))


def tune_garbage_collector() -> None:
    """Make full garbage collections rare and short: each stopped the screen for 100 ms.

    Imported modules live as long as the process. The many small parts of drawn lines form no cycles
    and are freed without a collection.
    """
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _resolve_place(text: str, loaded: LoadedConfiguration) -> str:
    """`R` or `R@STEP` with the whole id. Raises HoustonError for what there is not."""
    name, step = command_arguments.parse_step_reference(text)
    if not name:
        return ""
    with Reader(loaded.home) as reader:
        rollout = reader.run(rollout_queries.resolve_rollout_id(name))
        steps = reader.run(rollout_queries.find_rollout(rollout)).steps
    if step > steps + 1:  # the one after the last may be under way
        raise NotFound(
            f"{rollout} has no step {step}; its last is {steps}.",
            "Nothing was opened.",
            f"houston console {rollout}",
        )
    return command_arguments.format_permalink(rollout, step) if step else rollout


def _parse_screen_size(text: str) -> tuple[int, int]:
    width, _, height = text.partition("x")
    valid = all(re.fullmatch("[0-9]{1,4}", side) for side in (width, height))
    if not valid or int(width) < 40 or int(height) < 12:
        raise UsageError(
            f"{text!r} is not a screen size.",
            "No picture was made.",
            f"--size {DEFAULT_SCREENSHOT_SIZE} (columns x lines, at least 40x12)",
        )
    return int(width), int(height)
