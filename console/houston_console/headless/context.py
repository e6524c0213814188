"""`houston context R STEP` (or R@STEP): exactly what the model got at a step; `--diff`: what of it
the step before had not."""

import argparse

import msgspec

from houston_console.headless import options
from houston_console.headless.page import Page, span
from houston_shared import out, permalink
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.store import context, context_change
from houston_shared.store.context import ContextView
from houston_shared.store.context_change import Around
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
    parser.add_argument(
        "--diff", action="store_true", help="what is new since the step before, and what went"
    )
    options.as_json(parser, "one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Print the text on stdout, and on stderr what it is."""
    name, step = permalink.one(arguments.rollout, arguments.step)
    if not step:
        raise HoustonError("Name one step.", "", "houston context R@STEP", ExitCode.USAGE)
    with Reader(loaded.home) as reader:
        rollout = reader.run(rollouts.resolve(name))
        if told := reader.run(archived.sentence(rollout)):
            out.note(told)
        view = context.context_at(reader, rollout, step, arguments.attempt)
        if arguments.diff:
            _difference(view, reader.run(context_change.around(rollout, step)), arguments.json)
            return int(ExitCode.DONE)
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


def _difference(view: ContextView, around: Around, as_json: bool) -> None:
    """What the request has that the one before had not, and the other way round."""
    change = context_change.change(around.before or [], view.messages)
    step = view.sample.step
    if as_json:
        out.json_line(context_change.as_json(change, around, step))
        return
    out.note(_about(view))
    for one in around.summarised:
        out.note(f"Steps {one.first} to {one.last} are a summary since step {one.before}.")
    before = f"as in step {step - 1}" if around.before is not None else "(there is no step before)"
    out.note(f"{change.kept} messages {before}, {len(change.gone)} gone, {len(change.new)} new.")
    page = Page()
    for sign, tone, messages in (("-", "bad", change.gone), ("+", "good", change.new)):
        for number, message in messages:
            page.line(span(f"{sign} {number} ", tone), span(message.role, "name"))
            page.block(message.content, f"{sign}   ")
            for call in message.calls:
                page.line(f"{sign}   ", span(f"{call.name} {call.arguments}", "call"))


def _about(view: ContextView) -> str:
    sample, parent = view.sample, view.parent
    size = "without token ids" if view.token_ids is None else f"{len(view.token_ids)} tokens"
    kept = f", {sample.kept} kept from step {parent.step}" if parent and sample.kept else ""
    cached = "" if sample.cached_tokens is None else f", {sample.cached_tokens} cached"
    return f"{sample.rollout} step {sample.step}: {view.drift}, {size}{kept}{cached}"
