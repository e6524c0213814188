"""`houston judge R…`: rules, then a model, say of each step whether it is worth learning."""

import argparse
import asyncio
import contextlib
from pathlib import Path

import msgspec

from houston_daemon.commands import judge_measured, selecting
from houston_daemon.supervision import trace
from houston_daemon.supervision.judge import desk, serving
from houston_daemon.supervision.judge.results import Outcome, as_json, lines, passed_over
from houston_daemon.supervision.judge.session import Session, Wanted
from houston_daemon.supervision.judge.template import PACKAGED, Template, load
from houston_shared import out, secret_values
from houston_shared.config import Loaded
from houston_shared.config_judge import Judge
from houston_shared.control_socket import must_run
from houston_shared.errors import DaemonNotRunning, ExitCode, HoustonError
from houston_shared.flags import whole
from houston_shared.store import opening
from houston_shared.store.queries.selection import chosen
from houston_shared.store.reader import Reader


def arguments(parser: argparse.ArgumentParser) -> None:
    """`R…`, what is asked for, how the judge is asked, `--json`."""
    selecting.arguments(parser)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--rules-only", action="store_true", help="ask no model")
    what.add_argument(
        "--no-rules", action="store_true", help="leave the rules' verdicts as they are"
    )
    what.add_argument(
        "--calibrate",
        action="store_true",
        help="how rules and judge agree with people, over R… or everything that people judged",
    )
    what.add_argument(
        "--check-template",
        action="store_true",
        help="how many of the cases the engine judges as meant",
    )
    what.add_argument(
        "--print-template", action="store_true", help="write out the packaged template, to edit"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="ask and store nothing; what it takes"
    )
    parser.add_argument("--engine", metavar="E", help="engine of the configuration that judges")
    parser.add_argument(
        "--policy", default="", metavar="NAME", help="an adapter that it has loaded"
    )
    parser.add_argument("--template", type=Path, metavar="FILE", help="the judge's words")
    parser.add_argument("--cases", type=Path, metavar="DIR", help="cases for --check-template")
    parser.add_argument(
        "--concurrency", type=whole(1, 1_000), metavar="N", help="windows that are asked at once"
    )
    parser.add_argument(
        "--window", type=whole(512, 10**7), metavar="TOKENS", help="most of the engine's window"
    )
    parser.add_argument("--json", action="store_true", help="one JSON line a rollout")


def run(arguments: argparse.Namespace, loaded: Loaded) -> int:
    """Judge, measure, or print."""
    secret_values.install(loaded.config)
    if arguments.print_template:
        out.line(PACKAGED.read_text(encoding="utf-8").rstrip("\n"))
        return int(ExitCode.DONE)
    if arguments.calibrate:
        named = _named(arguments, loaded) if selecting.selection(arguments).given else []
        return judge_measured.calibrate(loaded, named, arguments.json)
    settings = _settings(arguments, loaded)
    template = load(_template(arguments, loaded))
    if arguments.check_template:
        return _check(arguments, loaded, settings, template)
    return _judge(arguments, loaded, settings, template)


def _judge(
    arguments: argparse.Namespace, loaded: Loaded, settings: Judge, template: Template
) -> int:
    named = _named(arguments, loaded)
    if not arguments.dry_run:
        must_run(loaded.home)  # before anything is asked that could not be stored
    wanted = Wanted(not arguments.no_rules, not arguments.rules_only, arguments.dry_run)
    failed: list[str] = []

    def done(one: Outcome) -> None:
        if one.judge is not None and one.judge.windows and not one.judge.steps:
            failed.append(one.rollout)
        if arguments.json:
            return out.json_line(as_json(one, settings, wanted.dry))
        for line in lines(one, wanted.dry):
            out.line(line)

    session = Session(loaded, settings, wanted, template, None, out.note, done)
    if not wanted.judge:
        asyncio.run(session.run(named))
        _told(session)
        return int(ExitCode.FAILED if session.failed else ExitCode.DONE)

    async def asked(place: serving.Place) -> None:
        made = desk.at(place, arguments.policy, settings.window, not wanted.dry)
        async with made as session.desk:
            await session.run(named)

    with _place(loaded, settings) as place:
        asyncio.run(asked(place))
    _told(session)
    if not (arguments.json or wanted.dry):
        out.note(session.cost.words(settings))
    return int(ExitCode.FAILED if failed or session.failed else ExitCode.DONE)


def _told(session: Session) -> None:
    if said := passed_over(session.passed):
        out.note(said)


def _check(
    arguments: argparse.Namespace, loaded: Loaded, settings: Judge, template: Template
) -> int:
    with _place(loaded, settings) as place:
        made = desk.at(place, arguments.policy, settings.window)
        return judge_measured.check(
            loaded, made, template, settings, arguments.cases, arguments.json
        )


def _place(loaded: Loaded, settings: Judge) -> serving.Place:
    """Where the engine is that judges."""
    return serving.Place(loaded, settings.engine or loaded.config.default_engine, out.note)


def _settings(arguments: argparse.Namespace, loaded: Loaded) -> Judge:
    """`[judge]` with the flags laid over it."""
    flags = {
        "engine": arguments.engine,
        "concurrency": arguments.concurrency,
        "window": arguments.window,
    }
    given = {key: value for key, value in flags.items() if value is not None}
    return msgspec.structs.replace(loaded.config.judge, **given)


def _template(arguments: argparse.Namespace, loaded: Loaded) -> Path | None:
    """The template's file; None for the packaged one."""
    if arguments.template:
        return Path(arguments.template)
    configured = loaded.config.judge.template
    return loaded.beside(configured) if configured else None


def _named(arguments: argparse.Namespace, loaded: Loaded) -> list[str]:
    """Whole ids of the rollouts that are meant, each once.

    Raises HoustonError, also where one was named whose texts are gone: of many at once it is only
    left out.
    """
    if not selecting.selection(arguments).given:
        raise HoustonError(
            "Name the rollouts to judge, or one of --task, --group and --all.",
            "",
            "houston rollout list",
            ExitCode.USAGE,
        )
    if not opening.written(loaded.home):
        raise DaemonNotRunning(f"No daemon runs on {loaded.home.path}, and none ever did.")
    with contextlib.closing(Reader(loaded.home)) as reader:
        found = reader.run(chosen(selecting.selection(arguments), "Nothing was judged."))
        for rollout in found if arguments.rollouts else ():
            reader.run(trace.all_there(rollout))
        return found
