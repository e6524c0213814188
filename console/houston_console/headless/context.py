"""`houston context R STEP` (or R@STEP): exactly what the model got at a step."""

import argparse

import msgspec

from houston_console.headless import options
from houston_console.headless.page import Page
from houston_shared import out, permalink
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.store import context
from houston_shared.store.context import ContextView
from houston_shared.store.queries import archived, rollouts
from houston_shared.store.reader import Reader


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `STEP`, `--attempt`, `--tokens`, `--json`."""
    options.place(parser)
    parser.add_argument(
        "step", type=options.positive, nargs="?", metavar="STEP", help="its number, from 1"
    )
    parser.add_argument(
        "--attempt", type=options.positive, metavar="N", help="an attempt that was replaced"
    )
    parser.add_argument("--tokens", action="store_true", help="token ids instead of their text")
    options.as_json(parser, "one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Print the text on stdout, and on stderr what it is."""
    place = permalink.split(arguments.rollout)
    step = arguments.step or place.first
    if not step or (arguments.step and place.first):
        raise HoustonError("Name one step.", "", "houston context R@STEP", ExitCode.USAGE)
    with Reader(loaded.home) as reader:
        rollout = reader.run(rollouts.resolve(place.rollout))
        if told := reader.run(archived.sentence(rollout)):
            out.note(told)
        view = context.context_at(reader, rollout, step, arguments.attempt)
    if arguments.json:
        out.json_line(context.as_json(view))
        return int(ExitCode.DONE)
    out.note(_about(view))
    if view.note:
        out.note(view.note)
    if not arguments.tokens:
        Page().line(view.rendered)
        if view.token_ids is None and view.tools:
            Page().line(
                "[tools]\n" + "\n".join(msgspec.json.encode(t).decode() for t in view.tools)
            )
    elif view.token_ids is not None:
        out.line(" ".join(map(str, view.token_ids)))
    return int(ExitCode.DONE)


def _about(view: ContextView) -> str:
    sample, parent = view.sample, view.parent
    size = "without token ids" if view.token_ids is None else f"{len(view.token_ids)} tokens"
    kept = f", {sample.kept} kept from step {parent.step}" if parent and sample.kept else ""
    cached = "" if sample.cached_tokens is None else f", {sample.cached_tokens} cached"
    return f"{sample.rollout} step {sample.step}: {view.drift}, {size}{kept}{cached}"
