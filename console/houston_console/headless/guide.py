"""`houston guide R TEXT`: say something to an agent, and know when it will be heard."""

import argparse
import sys

from houston_console.headless import asking, options
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.guidance_id import new_id
from houston_shared.records import Guidance, GuidanceMode
from houston_shared.store import views
from houston_shared.store.queries import rollouts
from houston_shared.store.queries.rollouts import Rollout
from houston_shared.store.reader import Reader
from houston_shared.wire import Guide


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `TEXT`, `--wake` or `--interrupt`, `--as`, `--json`."""
    options.rollout(parser)
    parser.add_argument(
        "text", nargs="+", metavar="TEXT", help="what to say; - reads it from stdin"
    )
    modes = parser.add_argument_group(
        "when it is heard",
        "without a flag its mode is `next`: joined to the end of the step that is under way",
    ).add_mutually_exclusive_group()
    modes.add_argument("--wake", action="store_true", help="also cut a sleep or a wait short")
    modes.add_argument(
        "--interrupt", action="store_true", help="also stop what the model is saying or waiting for"
    )
    options.speaker(parser)
    options.as_json(parser, "one JSON object: the guidance")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Queue it; prints its id, its state and when it will be heard."""
    text = _text(arguments.text)
    with_mode: GuidanceMode = (
        "interrupt" if arguments.interrupt else "wake" if arguments.wake else "next"
    )
    reader = Reader(loaded.home)  # not `with`, which says that there is no database yet
    rollout = asking.meant(reader, arguments.rollout)
    reader.close()
    message = Guide(
        id=new_id(),
        rollout=rollout.id,
        text=text,
        mode=with_mode,
        claimed=asking.speaker(arguments, loaded),
    )
    look = f"houston guidance {rollout.id}"
    said = asking.ask(loaded, message, "The guidance may have been queued.", look).guidance
    assert said is not None
    if arguments.json:
        out.json_line(views.guidance(said))
    else:
        out.line(f"{said.id} {said.state}: {_heard(said, rollout)}")
    return int(ExitCode.DONE)


def _text(words: list[str]) -> str:
    text = _standard_input() if words == ["-"] else " ".join(words)
    if not text.strip():
        raise HoustonError("There is no text to say.", "", "houston guide R TEXT", ExitCode.USAGE)
    return text.strip("\n")


def _standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError:
        raise HoustonError(
            "Standard input is not UTF-8 text.", "Nothing was said.", code=ExitCode.USAGE
        ) from None


def _heard(said: Guidance, rollout: Rollout) -> str:
    """When, in words."""
    if said.state == "delivered":
        return f"{rollout.id} heard it at step {said.step}."
    step = rollout.steps + 1
    if rollout.state == "queued":
        return f"{rollout.id} will hear it with its first observation."
    if rollouts.stands(rollout) or rollout.paused_by == "engine":
        return f"{rollout.id} is paused; it will hear it with step {step}, once it goes on."
    when = {
        "next": f"at the end of step {step}",
        "wake": f"at the end of step {step}, and sooner if it sleeps",
        "interrupt": "now: what it is doing is cut short",
    }[said.mode]
    return f"{rollout.id} will hear it {when}."
