"""`houston train cancel RUN`: end a training run; its checkpoints stay."""

import argparse

from houston_console.headless import asking, options, train_show
from houston_shared import out
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.store import policy_views
from houston_shared.store.reader import Reader
from houston_shared.wire_training import CancelTraining


def arguments(parser: argparse.ArgumentParser) -> None:
    """`RUN`, `--reason`, `--as`, `--json`."""
    parser.add_argument("run", metavar="RUN", help="its name, as `train list` says it")
    parser.add_argument("--reason", default="", metavar="TEXT", help="why; kept in the journal")
    options.speaker(parser)
    options.as_json(parser, "one JSON object: the run as `train list`")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Ask for it."""
    with Reader(loaded.home) as reader:
        one = train_show.meant(reader, arguments.run)
        claimed = asking.speaker(arguments, loaded)
        message = CancelTraining(run=one.id, reason=arguments.reason, claimed=claimed)
        look = f"houston train show {one.id}"
        asking.ask(loaded, message, "It may have been heard.", look)
        now = train_show.meant(reader, one.id)
    if arguments.json:
        out.json_line(policy_views.run(now, None))
    elif now.state == "cancelled":
        out.line(f"{now.id} is cancelled.")
    else:
        out.line(f"{now.id}: cancel is asked for; it ends once its checkpoint is written.")
    return int(ExitCode.DONE)
