"""`houston claim R`: look after a rollout, or no longer; shown to all, enforced for nobody."""

import argparse
import uuid

from houston_console.headless import asking, options
from houston_shared import out
from houston_shared.clock import local
from houston_shared.config import Loaded
from houston_shared.errors import ExitCode
from houston_shared.store import views
from houston_shared.store.queries import claims
from houston_shared.store.queries.claims import Holding
from houston_shared.store.reader import Reader
from houston_shared.wire_people import Claim


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--note`, `--release`, `--as`, `--json`."""
    options.rollout(parser)
    parser.add_argument(
        "--note",
        default="",
        metavar="TEXT",
        help="for the next person; stays until another is left",
    )
    parser.add_argument("--release", action="store_true", help="no longer look after it")
    options.speaker(parser)
    options.as_json(parser, "one JSON object")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Claim or release; says who held it before, and what they left."""
    reader = Reader(loaded.home)
    rollout = asking.meant(reader, arguments.rollout).id
    before = reader.run(claims.of(rollout))
    message = Claim(
        request=uuid.uuid4().hex,
        rollout=rollout,
        note=arguments.note,
        release=arguments.release,
        claimed=asking.speaker(arguments, loaded),
    )
    look = f"houston rollout show {rollout}"
    asking.ask(loaded, message, "It may have been done.", look)
    now = reader.run(claims.of(rollout))
    reader.close()
    if arguments.json:
        out.json_line(views.claim(now or Holding(rollout, "", None, True, 0, 0)))
        return int(ExitCode.DONE)
    holder = now.holder if now else ""
    out.line(f"{rollout} is held by {holder}." if holder else f"Nobody holds {rollout}.")
    if before and before.holder and before.holder != holder:
        out.line(f"{before.holder} held it since {local(before.since)}.")
    if now and now.note:
        out.line(f"note by {now.note_by} ({local(now.note_at)}): {now.note}")
    return int(ExitCode.DONE)
