"""`houston rollout branch R --at STEP`, or R@STEP: a sibling that goes on from after a step."""

import argparse
import uuid

from houston_console.headless import asking, options
from houston_shared import out, permalink
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.guidance_id import new_id
from houston_shared.store.queries import rollouts
from houston_shared.store.reader import Reader
from houston_shared.wire_operators import Branch


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--at`, `--guidance`, `--as`, `--json`."""
    options.place(parser)
    parser.add_argument(
        "--at", type=options.positive, metavar="STEP", help="last step both share; or R@STEP"
    )
    parser.add_argument(
        "--guidance", metavar="TEXT", help="for the first observation of the branch"
    )
    options.speaker(parser)
    options.as_json(parser, "one JSON object: rollout, task, state, parent, guidance")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Queue it and print its id; the rollout itself goes on as it does."""
    text = (arguments.guidance or "").strip("\n")
    if arguments.guidance is not None and not text.strip():
        raise HoustonError(
            "There is no text to say.", "No branch was started.", code=ExitCode.USAGE
        )
    name, step = permalink.one(arguments.rollout, arguments.at)
    if not step:
        raise HoustonError(
            "Name one step to branch at.",
            "No branch was started.",
            "houston rollout branch R@STEP",
            ExitCode.USAGE,
        )
    reader = Reader(loaded.home)
    one = asking.meant(reader, name)
    reader.close()
    message = Branch(
        request=uuid.uuid4().hex,
        rollout=one.id,
        step=step,
        id=new_id() if text else "",
        text=text,
        claimed=asking.speaker(arguments, loaded),
    )
    done = asking.ask(loaded, message, "It may have been queued.", "houston rollout list")
    (branch,) = done.rollouts
    if arguments.json:
        with Reader(loaded.home) as reader:
            made = reader.run(rollouts.rollout(branch))
        out.json_line(
            {
                "rollout": branch,
                "task": made.task,
                "state": made.state,
                "parent": {"rollout": made.parent, "step": made.parent_step},
                "guidance": done.guidance.id if done.guidance else None,
            }
        )
    else:
        out.line(branch)
        out.note(f"next: houston tail {branch} -f")
    return int(ExitCode.DONE)
