"""An export from beginning to end: reads rollouts, writes a folder with data files and a manifest.

`houston export` and `houston train sft` both use it; it also has the table of all formats. Where
rows of a rollout are refused, the export starts again, so that other rollouts train the shared
steps. Where a consumer would mistrain rows, or nothing is left to train, the whole export is
refused. It reads the home and writes one folder; it starts nothing and asks nobody.
"""

import contextlib
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_daemon.training.credit.credited_rows import RolloutCredit, credit_rollout
from houston_daemon.training.export import export_manifest, held_out_split
from houston_daemon.training.export.dataset_card import dataset_card
from houston_daemon.training.export.export_files import (
    SPOOL_NAME,
    UNFINISHED,
    DataFile,
    ExportFolder,
    LineSpool,
    check_parquet,
)
from houston_daemon.training.export.export_format import ExportFormat, RunRow
from houston_daemon.training.export.export_line_builder import BuiltLine, LineBuilder
from houston_daemon.training.export.export_manifest import (
    ExportedFile,
    ExportedRollout,
    ExportManifest,
    LeftOutRow,
)
from houston_daemon.training.export.export_recipe import ExportRecipe
from houston_daemon.training.export.held_out_split import ChosenRollout, HeldOutSplit
from houston_daemon.training.export.llama_factory_format import LLAMA_FACTORY
from houston_daemon.training.export.openai_format import OPENAI
from houston_daemon.training.export.raw_format import RAW
from houston_daemon.training.export.slime_format import SLIME
from houston_daemon.training.export.slime_rl_format import SLIME_RL
from houston_daemon.training.export.trl_format import TRL, TRL_CHAT
from houston_daemon.training.export.verl_format import VERL_RL, VERL_SFT
from houston_daemon.training.policies.policy_files import hash_file
from houston_daemon.training.rows.row_builder import (
    build_chat_rows,
    build_token_rows,
    tokenizer_file,
)
from houston_daemon.training.rows.rule_verdicts import RuleRuns, RulesFrom
from houston_daemon.training.rows.shared_steps import LostAnswers, SharedSteps, read_shared_steps
from houston_daemon.training.rows.training_row import ChatRow, RowOptions, TokenRow, provenance_of
from houston_shared.errors import ConfigurationError, HoustonError, UsageError
from houston_shared.home import Home
from houston_shared.store import rollout_queries
from houston_shared.store.store_reader import Reader
from houston_shared.times_and_counts import join_first

FORMATS = {
    format.name: format
    for format in (TRL, TRL_CHAT, VERL_SFT, LLAMA_FACTORY, SLIME, OPENAI, RAW, VERL_RL, SLIME_RL)
}


def choose_format(name: str, parquet: bool = False) -> ExportFormat:
    """The format called `name`; raises HoustonError where there is none, or no parquet of it."""
    format = FORMATS.get(name)
    if format is None:
        raise UsageError(
            f"There is no format {name!r}; known: {', '.join(FORMATS)}.", "Nothing was exported."
        )
    if parquet and format.only_lines:
        raise UsageError(
            f"There is no parquet file for {name}: {format.only_lines}.",
            "Nothing was exported.",
            "the same without --parquet",
        )
    return format


@dataclass(frozen=True, slots=True)
class UnusableAnswers:
    """What cannot be exported. It only grows, so retries end."""

    rollouts: SharedSteps
    """All rollouts of the export."""
    unreadable: Mapping[str, str] = field(default_factory=dict)
    """Rollouts of which no rows can be made, and why."""
    answers: LostAnswers = field(default_factory=dict)
    """What others of them share: all else is nobody's to make up for, and of a rollout that goes on
    there would be more of it in each try."""

    @property
    def shared(self) -> SharedSteps:
        """Who trains what with this gone."""
        return self.rollouts.without(self.unreadable, self.answers)

    def with_more(self, unreadable: Mapping[str, str], lost: LostAnswers) -> "UnusableAnswers":
        """With more that is gone."""
        answers = dict(self.answers)
        for rollout, more in lost.items():
            if shared := {answer for answer in more if self.rollouts.is_shared(rollout, answer)}:
                answers[rollout] = shared.union(answers.get(rollout, ()))
        return UnusableAnswers(self.rollouts, {**self.unreadable, **unreadable}, answers)

    def resolve_shared_losses(
        self, find_lost_answers: Callable[[str, SharedSteps], LostAnswers]
    ) -> "UnusableAnswers":
        """Add what the rollouts that take over lost answers cannot train either. A retry of the
        whole export for each branch of a group would take hours.

        find_lost_answers: what a rollout (a whole id) cannot train, given who trains what.
        """
        unusable = self
        while True:
            before, shared = unusable, unusable.shared
            takers = {
                shared.next_trainer(rollout, answer)
                for rollout, lost in unusable.answers.items()
                for answer in lost
            }
            for taker in sorted(takers - {""}):
                unusable = unusable.with_more({}, find_lost_answers(taker, shared))
            if unusable.answers == before.answers:
                return unusable


MAX_NAMED_ROWS = 5
"""Rows that an error names with each reason."""
MAX_NAMED_REASONS = 4
"""Reasons that it names."""


def refuse_mistrained(builder: LineBuilder, data: ExportedFile, leave_out: bool) -> None:
    """Raise HoustonError unless what was written is what will be trained, or raw."""
    if builder.refused and not leave_out:
        raise _mistrained_error(builder.format, builder.refused)
    if not data.rows or not (data.trained or builder.format.untrained):
        rows = [*builder.refused, *builder.untrained]
        why = f": {_rows_by_reason(rows)}" if rows else ": these rollouts have no closed step"
        verdicts = "houston verdict R shows what was masked and why"
        raise HoustonError(
            f"Nothing would be trained{why}.",
            "Nothing was exported.",
            "Correct the rows or steps that are named" if builder.refused else verdicts,
        )


def _mistrained_error(format: ExportFormat, refused: Sequence[LeftOutRow]) -> HoustonError:
    count = len(refused)
    what = "1 row or step" if count == 1 else f"{count} rows or steps"
    mend = "Mask the named steps (houston verdict), or export ids (--format trl); "
    return HoustonError(
        f"{what} cannot be written for {format.name}: {_rows_by_reason(refused)}.",
        "Nothing was exported.",
        f"{'' if format.credited else mend}houston export … --leave-out omits them and lists"
        " them in the manifest",
    )


def _rows_by_reason(rows: Sequence[LeftOutRow]) -> str:
    """Rows by reason: some of them, and how many more."""
    by: dict[str, list[str]] = {}
    for row in rows:
        by.setdefault(row.why, []).append(row.row)
    parts = []
    for why, names in list(by.items())[:MAX_NAMED_REASONS]:
        parts.append(f"{join_first(names, MAX_NAMED_ROWS)}: {why.rstrip('.')}")
    if len(by) > MAX_NAMED_REASONS:
        parts.append(f"{len(by) - MAX_NAMED_REASONS} more reasons")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What is to be exported, and how."""

    rollouts: tuple[str, ...]
    """Whole ids, in the order of their rows (`store.rollout_queries`)."""
    format: str = "trl"
    rows: RowOptions = field(default_factory=RowOptions)
    recipe: ExportRecipe = field(default_factory=ExportRecipe)
    held_out: HeldOutSplit = field(default_factory=HeldOutSplit)
    parquet: bool = False
    leave_out: bool = False
    """Leave rows out that the consumer would mistrain, instead of refusing the export."""
    force: bool = False
    """Replace another export in the folder."""
    rules: RulesFrom = "run"
    """Whether the rules are run on every rollout, or what was stored of them counts, or nothing."""
    credits: tuple[RolloutCredit, ...] = ()
    """Of a format with credit: one for each of the rollouts, in their order."""
    run: Mapping[str, Any] = field(default_factory=dict)
    """What the manifest says of the run that they are of."""
    people_by_name: bool = False
    """Whether the manifest names who spoke to the agents."""


class ExportResult(NamedTuple):
    """What lies in the folder now."""

    folder: Path
    manifest: ExportManifest
    written: bool
    """False where the same export lay there already."""


def write_export(home: Home, request: ExportRequest, to: Path) -> ExportResult:
    """Write an export of rollouts of `home` into the folder `to`.

    Raises HoustonError: for rows that the consumer would mistrain (naming them), where nothing is
    left to train, for a folder that holds something else, and for what cannot be read.
    """
    format = choose_format(request.format, request.parquet)
    _refuse_without_credit(format, request)
    if request.parquet or format.arrow:
        check_parquet(format)
    with Reader(home) as reader:
        chosen = held_out_split.read_chosen(reader, request.rollouts)
        members = held_out_split.read_split_members(reader, chosen) if request.held_out else []
        held_out = held_out_split.choose_held_out(members, request.held_out)
        place = ExportFolder(to, request.force)
        with place.hold():
            place.refuse_other(_inputs_hash(request, chosen))
            place.mark()
            manifest = _write_files(reader, request, format, chosen, held_out, to)
            names = [file.name for file in manifest.files]
            if format.index:
                names += [f"{name.partition('.')[0]}.rows.jsonl" for name in names]
            support = format.support_files([(file.name, file.sha256) for file in manifest.files])
            page = dataset_card(manifest, format)
            written = place.publish(manifest, page, names, support)
    return ExportResult(to, manifest, written)


def _refuse_without_credit(format: ExportFormat, request: ExportRequest) -> None:
    """Raise HoustonError where rows have no advantages and the format wants them, or have some for
    which it has no room."""
    if format.credited and not request.credits:
        raise UsageError(
            f"{format.name} needs advantages, which only the groups of a run have.",
            "Nothing was exported.",
            f"houston export --run RUN --format {format.name}",
        )
    if request.credits and not format.credited:
        credited = " or ".join(each.name for each in FORMATS.values() if each.credited)
        raise UsageError(
            f"{format.name} has no room for advantages: it would train what a run found bad as if"
            " it were good.",
            "Nothing was exported.",
            f"--format {credited}; or name the rollouts (houston export R… --format {format.name})",
        )


def _write_files(
    reader: Reader,
    request: ExportRequest,
    format: ExportFormat,
    chosen: list[ChosenRollout],
    held_out: frozenset[str],
    to: Path,
) -> ExportManifest:
    """Write the data files; begun anew where others must train what could not be used after all."""
    unusable = UnusableAnswers(read_shared_steps(reader, request.rollouts))
    rules = RuleRuns(reader, request.rules if request.rows.masking else "stored")
    while True:
        attempt = _ExportAttempt(
            reader, request, LineBuilder(format), chosen, held_out, to, unusable, rules
        )
        try:
            return attempt.write()
        except _ExportAgain as again:
            unusable = again.unusable


class _ExportAgain(Exception):
    """More is unusable than was known at the beginning, and what was written counts on it."""

    def __init__(self, unusable: UnusableAnswers) -> None:
        super().__init__(unusable)
        self.unusable = unusable


class _ExportAttempt:
    """One export under way."""

    def __init__(
        self,
        reader: Reader,
        request: ExportRequest,
        builder: LineBuilder,
        chosen: list[ChosenRollout],
        held_out: frozenset[str],
        folder: Path,
        unusable: UnusableAnswers,
        rules: RuleRuns,
    ) -> None:
        self._rules = rules
        self._reader = reader
        self._request = request
        self._builder = builder
        self._chosen = chosen
        self._held_out = held_out
        self._folder = folder
        self._unusable = unusable
        self._shared = unusable.shared
        self._broken: dict[str, str] = {}
        """Rollouts that broke in this try, and why."""
        self._failed_midway = False
        """Whether one of them broke after some of its rows were taken in."""
        self._sources: list[ExportedRollout] = []
        self._credits = {credit.rollout: credit for credit in request.credits}
        groups = dict.fromkeys(credit.group for credit in request.credits)
        self._group_numbers = {group: number for number, group in enumerate(groups)}
        self._rollout_numbers = {rollout: number for number, rollout in enumerate(self._credits)}

    def write(self) -> ExportManifest:
        """Write the data files, unfinished, and say what is in them. Raises _ExportAgain."""
        files = [self._file("data")]
        if self._held_out:
            files.append(self._file("held_out"))
        with contextlib.ExitStack() as stack:
            spool = None
            if not self._request.recipe.as_made:
                spool = LineSpool(self._folder / (SPOOL_NAME + UNFINISHED))
                stack.callback(spool.close)
            self._fill(files, spool)
        closed = [file.close() for file in files]
        if self._request.leave_out:
            self._raise_if_incomplete()
        return self._manifest(closed)

    def _raise_if_incomplete(self) -> None:
        """Raise _ExportAgain where lines count on others that are not there."""
        unusable = self._unusable.with_more(self._broken, self._builder.losses.lost)
        shared = bool(self._broken) and self._shared.branched
        if self._failed_midway or shared or unusable.answers != self._unusable.answers:
            raise _ExportAgain(unusable.resolve_shared_losses(self._lost_of))

    def _lost_of(self, id: str, shared: SharedSteps) -> LostAnswers:
        """What a rollout cannot train; where its rows break, who writes finds out."""
        builder = LineBuilder(self._builder.format)
        with contextlib.suppress(HoustonError):
            for row, run_row in self._with_credit(id, self._build_rows(id, shared)):
                for _ in builder.lines(row, run_row):
                    pass
        return builder.losses.lost

    def _fill(self, files: Sequence[DataFile], spool: LineSpool | None) -> None:
        for chosen in self._chosen:
            held_out = chosen.rollout.task in self._held_out
            for built in self._lines(chosen, held_out):
                if spool is not None and not held_out:
                    spool.add(built)
                else:
                    files[held_out].write(built)
        if spool is not None:
            for built in spool.read(self._request.recipe.order(spool.keys_and_kinds())):
                files[0].write(built)

    def _file(self, stem: str) -> DataFile:
        return DataFile(self._folder, stem, self._builder.format, self._request.parquet)

    def _lines(self, chosen: ChosenRollout, held_out: bool) -> Iterator[BuiltLine]:
        """Lines of one rollout; then it is among the sources."""
        id, rows, exported = chosen.rollout.id, 0, 0
        before = self._reader.run(rollout_queries.newest_seq(id))
        try:
            for row, run_row in self._with_credit(id, self._build_rows(id, self._shared)):
                rows += 1
                lines = list(self._builder.lines(row, run_row))
                exported += bool(lines)
                yield from lines
        except HoustonError as problem:
            if isinstance(problem, ConfigurationError) and not self._request.leave_out:
                raise _with_render_flags(problem) from None
            if id not in self._unusable.unreadable:
                self._broken[id] = problem.cause
                self._failed_midway = self._failed_midway or bool(rows)
            self._builder.refuse(id, problem.cause)
        moved = self._reader.run(rollout_queries.newest_seq(id)) != before
        self._sources.append(self._source(chosen, before, exported, held_out, moved))

    def _build_rows(self, id: str, shared: SharedSteps) -> Iterator[TokenRow] | Iterator[ChatRow]:
        if why := self._unusable.unreadable.get(id):
            raise HoustonError(why)
        ids = self._builder.format.unit == "ids"
        make = build_token_rows if ids else build_chat_rows
        return make(self._reader, id, self._request.rows, shared, self._rules.verdicts_of(id))

    def _with_credit(
        self, id: str, rows: Iterator[Any]
    ) -> Iterator[tuple[TokenRow | ChatRow, RunRow | None]]:
        """Rows of a rollout, each with its credit where they have some."""
        credit = self._credits.get(id)
        if credit is None:
            yield from ((row, None) for row in rows)
            return
        for credited in credit_rollout(rows, credit):
            yield (
                credited.row,
                RunRow(
                    credited,
                    credit,
                    self._rollout_numbers[id],
                    self._group_numbers[credit.group],
                ),
            )

    def _sound_rollouts(self) -> list[str]:
        """Rollouts that rows were made of."""
        unsound = self._unusable.unreadable.keys() | self._broken.keys()
        return [rollout for rollout in self._request.rollouts if rollout not in unsound]

    def _source(
        self, chosen: ChosenRollout, seq: int, rows: int, held_out: bool, moved: bool
    ) -> ExportedRollout:
        rollout = chosen.rollout
        policies = self._builder.policies.get(rollout.id) or {rollout.policy}
        return ExportedRollout(
            rollout=rollout.id,
            task=rollout.task,
            group=rollout.group_id,
            parent=rollout.parent,
            parent_step=rollout.parent_step,
            state=rollout.state,
            newest_seq=seq,
            past_seq=chosen.past_seq,
            provenance=provenance_of(rollout.sandbox),
            engine=rollout.engine,
            policies=sorted(policies),
            rows=rows,
            held_out=held_out,
            moved=moved,
        )

    def _manifest(self, files: list[ExportedFile]) -> ExportManifest:
        request, builder = self._request, self._builder
        refuse_mistrained(builder, files[0], request.leave_out)
        tasks = {source.task for source in self._sources}
        provenances = {source.provenance for source in self._sources if source.rows}
        return ExportManifest(
            version=export_manifest.MANIFEST_VERSION,
            format=request.format,
            rows=files[0].rows,
            content_hash=files[0].sha256,
            inputs=_inputs_hash(request, self._chosen),
            files=files,
            counts=builder.counts(),
            sources=self._sources,
            provenance=next(
                (origin for origin in ("none", "elsewhere") if origin in provenances), "sandbox"
            ),
            verdicts=export_manifest.read_judged_by(
                self._reader, self._sound_rollouts(), self._rules
            ),
            options={
                **asdict(request.rows),
                "parquet": request.parquet,
                "leave_out": request.leave_out,
                "rules": request.rules,
            },
            recipe=asdict(request.recipe),
            split={
                "by": "task",
                **asdict(request.held_out),
                "train": sorted(tasks - self._held_out),
                "held_out": sorted(self._held_out),
            },
            tokenizers={
                path: hash_file(tokenizer_file(path)) for path in sorted(builder.tokenizers)
            },
            dialects=sorted(builder.dialects),
            base=sorted({chosen.base for chosen in self._chosen}),
            left_out=[*builder.refused, *builder.untrained],
            remarks=dict(sorted(builder.remarks.items())),
            traps=[*self._advice(), *builder.format.warnings],
            versions={"houston": version("houston-agents")},
            drawn=builder.sampling_counts(),
            ids_from=dict(sorted(builder.ids_from.items())),
            people=export_manifest.read_people(
                self._reader,
                [source.rollout for source in self._sources if source.rows],
                request.people_by_name,
            ),
            run=dict(request.run),
        )

    def _advice(self) -> list[str]:
        models = sorted({(chosen.base, chosen.dialect) for chosen in self._chosen})
        return [advice] if (advice := self._builder.format.advice(models)) else []


def _with_render_flags(problem: ConfigurationError) -> ConfigurationError:
    """Rows cannot be rendered as asked; the same for every rollout of that engine."""
    return ConfigurationError(
        problem.cause,
        "Nothing was exported.",
        f"{problem.next.rstrip('.')}: --dialect NAME --tokenizer PATH; or a format of messages",
    )


def _inputs_hash(request: ExportRequest, chosen: list[ChosenRollout]) -> str:
    """SHA-256 of everything that decides what is in the files, as far as it is known beforehand."""
    options: dict[str, Any] = asdict(request)
    options.pop("force")
    sources = [(each.rollout.id, each.rollout.last_seq, each.past_seq) for each in chosen]
    encoded = msgspec.json.encode(
        [options, sources, version("houston-agents"), export_manifest.MANIFEST_VERSION]
    )
    return hashlib.sha256(encoded).hexdigest()
