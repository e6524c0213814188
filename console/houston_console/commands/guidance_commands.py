"""`houston guide` and `houston guidance`: send guidance to an agent; list, withdraw, edit,
reorder it.

The daemon refuses a change of what was delivered or changed meanwhile. The console's composer is
in `panes.guidance_composer`.
"""

import argparse
import sys

from houston_console.commands import command_options, daemon_requests, rollout_summary
from houston_console.commands.output_page import OutputPage
from houston_shared import command_output
from houston_shared.config import LoadedConfiguration
from houston_shared.control_messages import RejectDraft, ReorderGuidance, new_guidance_id
from houston_shared.errors import ExitCode, HoustonError, UsageError
from houston_shared.records import Guidance, GuidanceMode
from houston_shared.store import annotation_queries, draft_queries, json_views, rollout_queries
from houston_shared.store.draft_queries import CriticDraft
from houston_shared.store.rollout_queries import RolloutRow
from houston_shared.store.store_reader import Reader
from houston_shared.wire import EditGuidance, Guide, WithdrawGuidance


def add_guide_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `TEXT`, `--wake` or `--interrupt`, `--as`, `--json`."""
    command_options.add_rollout_argument(parser)
    parser.add_argument(
        "text", nargs="+", metavar="TEXT", help="what to say; - reads it from stdin"
    )
    parser.add_argument(
        "--draft",
        metavar="ID",
        help="critic's draft (houston guidance R --drafts) to send in these words",
    )
    modes = parser.add_argument_group(
        "when it is heard",
        "without a flag the mode is `next`: delivered at the end of the current step",
    ).add_mutually_exclusive_group()
    modes.add_argument("--wake", action="store_true", help="also cut a sleep or a wait short")
    modes.add_argument(
        "--interrupt", action="store_true", help="also stop what the model is saying or waiting for"
    )
    command_options.add_speaker_option(parser)
    command_options.add_json_option(parser, "one JSON object: the guidance")


def run_guide(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """Queue it; prints its id, its state and when it will be heard."""
    with_mode: GuidanceMode = (
        "interrupt" if arguments.interrupt else "wake" if arguments.wake else "next"
    )
    reader = Reader(loaded.home)  # not `with`, which says that there is no database yet
    rollout = daemon_requests.resolve_rollout(reader, arguments.rollout)
    named = arguments.draft
    draft = None if named is None else _named_draft(reader, rollout.id, named)
    reader.close()
    message = Guide(
        id=new_guidance_id(),
        rollout=rollout.id,
        text=_guidance_text(arguments.text),
        mode=with_mode,
        draft=draft.id if draft else "",
        claimed=daemon_requests.claimed_name(arguments, loaded),
    )
    look = f"houston guidance {rollout.id}"
    guidance = daemon_requests.send_request(
        loaded, message, "The guidance may have been queued.", look
    ).guidance
    assert guidance is not None
    if arguments.json:
        command_output.print_json_line(json_views.guidance_json(guidance))
    else:
        command_output.print_line(
            f"{guidance.id} {guidance.state}: {_delivery_text(guidance, rollout)}"
        )
    return int(ExitCode.DONE)


def _named_draft(reader: Reader, rollout: str, id: str) -> CriticDraft:
    """A critic's draft by its id or the start of it. Raises HoustonError."""
    look = f"houston guidance {rollout} --drafts"
    if not id:
        raise UsageError("An empty text names no draft.", "Nothing was done.", look)
    drafts = reader.run(draft_queries.list_drafts(rollout))
    matches = [draft for draft in drafts if draft.id.startswith(id)]
    if len(matches) != 1:
        raise HoustonError(
            f"{len(matches) or 'No'} drafts for {rollout} begin with {id!r}.",
            "Nothing was done.",
            look,
            ExitCode.USAGE if matches else ExitCode.NOT_FOUND,
        )
    return matches[0]


def _guidance_text(words: list[str]) -> str:
    text = _read_standard_input() if words == ["-"] else " ".join(words)
    if not text.strip():
        raise UsageError("There is no text to say.", "", "houston guide R TEXT")
    return text.strip("\n")


def _read_standard_input() -> str:
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("Standard input is not UTF-8 text.", "Nothing was said.") from None


def _delivery_text(guidance: Guidance, rollout: RolloutRow) -> str:
    """When the agent will hear it, in words."""
    if guidance.state == "delivered":
        return f"{rollout.id} heard it at step {guidance.step}."
    step = rollout.steps + 1
    if rollout.state == "queued":
        return f"{rollout.id} will hear it with its first observation."
    if rollout_queries.is_at_rest(rollout) or rollout.paused_by == "engine":
        return f"{rollout.id} is paused; it will hear it with step {step}, once it continues."
    when = {
        "next": f"at the end of step {step}",
        "wake": f"at the end of step {step}, and sooner if it sleeps",
        "interrupt": "now: what it is doing is cut short",
    }[guidance.mode]
    return f"{rollout.id} will hear it {when}."


def add_guidance_arguments(parser: argparse.ArgumentParser) -> None:
    """`R`, `--withdraw`, `--edit` or `--reorder`, `--as`, `--json`."""
    command_options.add_rollout_argument(parser)
    change = parser.add_mutually_exclusive_group()
    change.add_argument("--withdraw", metavar="ID", help="take queued guidance back")
    change.add_argument(
        "--edit", nargs=2, metavar=("ID", "TEXT"), help="replace the text of queued guidance"
    )
    change.add_argument(
        "--reorder",
        nargs="+",
        metavar="ID",
        help="deliver queued guidance in this order; what is not named follows in its old order",
    )
    change.add_argument("--accept", metavar="ID", help="send a critic's draft")
    change.add_argument("--reject", metavar="ID", help="turn a critic's draft down")
    change.add_argument("--drafts", action="store_true", help="show the critics' drafts")
    command_options.add_speaker_option(parser)
    command_options.add_json_option(parser, "one JSON line per piece of guidance, or draft")


def run_guidance(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """List, withdraw, edit, reorder; list and turn down a critic's drafts."""
    # An empty ID is one that a script never set: it names nothing, and is not left out.
    if arguments.drafts or arguments.accept is not None or arguments.reject is not None:
        return _show_drafts(arguments, loaded)
    if arguments.withdraw is not None or arguments.edit:
        messages = [_change_guidance(arguments, loaded)]
    elif arguments.reorder:
        messages = _reorder_queue(arguments, loaded)
    else:
        with Reader(loaded.home) as reader:
            rollout = reader.run(rollout_queries.resolve_rollout_id(arguments.rollout))
            messages = reader.run(annotation_queries.list_guidance(rollout))
        if not messages:
            command_output.print_note(
                f"Nothing was said to {rollout}.\n  next: houston guide {rollout} TEXT"
            )
    page = OutputPage()
    for message in messages:
        if arguments.json:
            command_output.print_json_line(json_views.guidance_json(message))
        else:
            rollout_summary.print_guidance(page, message)
    return int(ExitCode.DONE)


def _show_drafts(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> int:
    """The drafts of a rollout, one of them said or turned down first where that is asked."""
    page = OutputPage()
    with Reader(loaded.home) as reader:
        rollout = daemon_requests.resolve_rollout(reader, arguments.rollout).id
        accepts = arguments.accept is not None
        named = arguments.accept if accepts else arguments.reject
        if named is not None:
            draft = _named_draft(reader, rollout, named)
            claimed = daemon_requests.claimed_name(arguments, loaded)
            message: Guide | RejectDraft = RejectDraft(id=draft.id, claimed=claimed)
            if accepts:
                message = Guide(
                    id=new_guidance_id(),
                    rollout=rollout,
                    text=draft.text,
                    draft=draft.id,
                    claimed=claimed,
                )
            look = f"houston guidance {rollout} --drafts"
            daemon_requests.send_request(loaded, message, "It may have been decided.", look)
        drafts = reader.run(draft_queries.list_drafts(rollout))
    for draft in drafts:
        if arguments.json:
            command_output.print_json_line(draft_queries.draft_json(draft))
        else:
            rollout_summary.print_draft(page, draft)
    if not drafts:
        command_output.print_note(
            f"No critic drafted anything for {rollout}.\n  next: houston critique {rollout} --draft"
        )
    return int(ExitCode.DONE)


def _reorder_queue(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> list[Guidance]:
    """Put queued guidance in another order; the daemon refuses when the queue changed meanwhile."""
    with Reader(loaded.home) as reader:
        rollout = daemon_requests.resolve_rollout(reader, arguments.rollout).id
        queued = _queued_guidance(reader.run(annotation_queries.list_guidance(rollout)))
        named = [reader.run(annotation_queries.find_guidance(id)) for id in arguments.reorder]
        ids = [guidance.id for guidance in queued]
        for guidance in named:
            if guidance.id not in ids:
                raise HoustonError(
                    f"Guidance {guidance.id} is not queued for {rollout}: it is {guidance.state}.",
                    "Nothing was changed.",
                    f"houston guidance {rollout}",
                )
        first = list(dict.fromkeys(guidance.id for guidance in named))
        message = ReorderGuidance(
            rollout=rollout,
            order=(*first, *(id for id in ids if id not in first)),
            seen=tuple(ids),
            claimed=daemon_requests.claimed_name(arguments, loaded),
        )
        look = f"houston guidance {rollout}"
        daemon_requests.send_request(loaded, message, "The order may have been changed.", look)
        return _queued_guidance(reader.run(annotation_queries.list_guidance(rollout)))


def _queued_guidance(messages: list[Guidance]) -> list[Guidance]:
    return [message for message in messages if message.state == "queued"]


def _change_guidance(arguments: argparse.Namespace, loaded: LoadedConfiguration) -> Guidance:
    """Withdraw or edit; the daemon refuses what was delivered or changed meanwhile."""
    with Reader(loaded.home) as reader:
        rollout = daemon_requests.resolve_rollout(reader, arguments.rollout).id
        id = arguments.edit[0] if arguments.edit else arguments.withdraw
        guidance = reader.run(annotation_queries.find_guidance(id))
    if guidance.rollout != rollout:
        raise HoustonError(
            f"Guidance {guidance.id} belongs to {guidance.rollout}, not to {rollout}.",
            "Nothing was changed.",
            f"houston guidance {guidance.rollout}",
        )
    claimed = daemon_requests.claimed_name(arguments, loaded)
    message: WithdrawGuidance | EditGuidance = WithdrawGuidance(id=guidance.id, claimed=claimed)
    if arguments.edit:
        text, revision = arguments.edit[1], guidance.revision
        message = EditGuidance(id=guidance.id, revision=revision, text=text, claimed=claimed)
    answer = daemon_requests.send_request(
        loaded, message, "It may have been changed.", f"houston guidance {rollout}"
    )
    assert answer.guidance is not None
    return answer.guidance
