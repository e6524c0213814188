"""An export from beginning to end: rollouts in, a folder with data files and a manifest out.

The one door for `houston export` and for `houston train sft`. It reads the home and writes one
folder; it starts and asks nobody.
"""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from houston_daemon.training.export import card, judged, manifest, refusal, sources, split
from houston_daemon.training.export.building import Building, Built
from houston_daemon.training.export.files import UNFINISHED, DataFile, Spool, check_parquet
from houston_daemon.training.export.format import Format
from houston_daemon.training.export.formats import choose_format
from houston_daemon.training.export.gone import Gone
from houston_daemon.training.export.manifest import File, Manifest, Source
from houston_daemon.training.export.place import SPOOL, Place
from houston_daemon.training.export.recipe import Recipe
from houston_daemon.training.export.sources import Chosen
from houston_daemon.training.export.split import HeldOut
from houston_daemon.training.rows.beside import Beside, Lost
from houston_daemon.training.rows.beside import read as read_beside
from houston_daemon.training.rows.making import chat_rows, token_rows
from houston_daemon.training.rows.row import ChatRow, Row, RowOptions
from houston_daemon.training.rows.ruled import RuleRuns, RulesFrom
from houston_shared.errors import ConfigurationError, HoustonError
from houston_shared.home import Home
from houston_shared.store.queries import progress
from houston_shared.store.reader import Reader


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be exported, and how."""

    rollouts: tuple[str, ...]
    """Whole ids, in the order of their rows (`queries.selection`)."""
    format: str = "trl"
    rows: RowOptions = field(default_factory=RowOptions)
    recipe: Recipe = field(default_factory=Recipe)
    held_out: HeldOut = field(default_factory=HeldOut)
    parquet: bool = False
    leave_out: bool = False
    """Leave rows out that the consumer would mistrain, instead of refusing the export."""
    force: bool = False
    """Replace another export in the folder."""
    rules: RulesFrom = "run"
    """Whether the rules are run on every rollout, or what was stored of them counts, or nothing."""


class Exported(NamedTuple):
    """What lies in the folder now."""

    folder: Path
    manifest: Manifest
    written: bool
    """False where the same export lay there already."""


def export(home: Home, asked: Asked, to: Path) -> Exported:
    """Write an export of rollouts of `home` into the folder `to`.

    Raises HoustonError: for rows that the consumer would mistrain (naming them), where nothing is
    left to train, for a folder that holds something else, and for what cannot be read.
    """
    format = choose_format(asked.format, asked.parquet)
    if asked.parquet:
        check_parquet()
    with Reader(home) as reader:
        chosen = sources.read(reader, asked.rollouts)
        members = sources.members(reader, chosen) if asked.held_out else []
        held_out = split.divide(members, asked.held_out)
        place = Place(to, asked.force)
        with place.alone():
            place.refuse_other(_inputs(asked, chosen))
            place.mark()
            made = _made(reader, asked, format, chosen, held_out, to)
            names = [one.name for one in made.files]
            if format.index:
                names += [f"{name.partition('.')[0]}.rows.jsonl" for name in names]
            written = place.publish(made, card.page(made, format), names)
    return Exported(to, made, written)


def _made(
    reader: Reader,
    asked: Asked,
    format: Format,
    chosen: list[Chosen],
    held_out: frozenset[str],
    to: Path,
) -> Manifest:
    """Write the data files; begun anew where others must train what could not be used after all."""
    gone = Gone(read_beside(reader, asked.rollouts))
    rules = RuleRuns(reader, asked.rules if asked.rows.masking else "stored")
    while True:
        work = _Work(reader, asked, Building(format), chosen, held_out, to, gone, rules)
        try:
            return work.write()
        except _Anew as found:
            gone = found.gone


class _Anew(Exception):
    """More is gone than was known at the beginning, and what was written counts on it."""

    def __init__(self, gone: Gone) -> None:
        super().__init__(gone)
        self.gone = gone


class _Work:
    """One export under way."""

    def __init__(
        self,
        reader: Reader,
        asked: Asked,
        building: Building,
        chosen: list[Chosen],
        held_out: frozenset[str],
        folder: Path,
        gone: Gone,
        rules: RuleRuns,
    ) -> None:
        self._rules = rules
        self._reader = reader
        self._asked = asked
        self._building = building
        self._chosen = chosen
        self._held_out = held_out
        self._folder = folder
        self._gone = gone
        self._beside = gone.beside
        self._broken: dict[str, str] = {}
        """Rollouts that broke in this try, and why."""
        self._cut = False
        """Whether one of them broke after some of its rows were taken in."""
        self._sources: list[Source] = []

    def write(self) -> Manifest:
        """Write the data files, unfinished, and say what is in them. Raises _Anew."""
        files = [self._file("data")]
        if self._held_out:
            files.append(self._file("held_out"))
        spool = None if self._asked.recipe.as_made else Spool(self._folder / (SPOOL + UNFINISHED))
        try:
            self._fill(files, spool)
        finally:
            if spool is not None:
                spool.close()
        closed = [one.close() for one in files]
        if self._asked.leave_out:
            self._agreed()
        return self._manifest(closed)

    def _agreed(self) -> None:
        """Raise _Anew where lines count on others that are not there."""
        now = self._gone.and_more(self._broken, self._building.losses.lost)
        shared = bool(self._broken) and self._beside.branched
        if self._cut or shared or now.answers != self._gone.answers:
            raise _Anew(now.settled(self._lost_of))

    def _lost_of(self, id: str, beside: Beside) -> Lost:
        """What a rollout cannot train; where its rows break, who writes finds out."""
        building = Building(self._building.format)
        with contextlib.suppress(HoustonError):
            for row in self._made(id, beside):
                for _ in building.lines(row):
                    pass
        return building.losses.lost

    def _fill(self, files: Sequence[DataFile], spool: Spool | None) -> None:
        for one in self._chosen:
            held = one.rollout.task in self._held_out
            for built in self._lines(one, held):
                if held:
                    files[1].write(built)
                elif spool is not None:
                    spool.add(built)
                else:
                    files[0].write(built)
        if spool is not None:
            for built in spool.read(self._asked.recipe.order(spool.known())):
                files[0].write(built)

    def _file(self, stem: str) -> DataFile:
        return DataFile(self._folder, stem, self._building.format, self._asked.parquet)

    def _lines(self, one: Chosen, held_out: bool) -> Iterator[Built]:
        """Lines of one rollout; then it is among the sources."""
        id, seen, count = one.rollout.id, 0, 0
        before = self._reader.run(progress.last_seq(id))
        try:
            for row in self._made(id, self._beside):
                seen += 1
                found = list(self._building.lines(row))
                count += bool(found)
                yield from found
        except HoustonError as problem:
            if isinstance(problem, ConfigurationError) and not self._asked.leave_out:
                raise _flags(problem) from None
            if id not in self._gone.whole:
                self._broken[id] = problem.cause
                self._cut = self._cut or bool(seen)
            self._building.refuse(id, problem.cause)
        moved = self._reader.run(progress.last_seq(id)) != before
        self._sources.append(self._source(one, before, count, held_out, moved))

    def _made(self, id: str, beside: Beside) -> Iterator[Row] | Iterator[ChatRow]:
        if why := self._gone.whole.get(id):
            raise HoustonError(why)
        ids = self._building.format.of == "ids"
        make = token_rows if ids else chat_rows
        return make(self._reader, id, self._asked.rows, beside, self._rules.of(id))

    def _sound(self) -> list[str]:
        """Rollouts that rows were made of."""
        unsound = self._gone.whole.keys() | self._broken.keys()
        return [one for one in self._asked.rollouts if one not in unsound]

    def _source(self, one: Chosen, seq: int, rows: int, held_out: bool, moved: bool) -> Source:
        known = one.rollout
        policies = self._building.policies.get(known.id) or {known.policy}
        return Source(
            rollout=known.id,
            task=known.task,
            group=known.group_id,
            parent=known.parent,
            parent_step=known.parent_step,
            state=known.state,
            newest_seq=seq,
            past_seq=one.past_seq,
            provenance="none" if known.sandbox == "none" else "sandbox",
            engine=known.engine,
            policies=sorted(policies),
            rows=rows,
            held_out=held_out,
            moved=moved,
        )

    def _manifest(self, files: list[File]) -> Manifest:
        asked, building = self._asked, self._building
        refusal.check(asked, building, files[0])
        tasks = {one.task for one in self._sources}
        none = any(one.provenance == "none" and one.rows for one in self._sources)
        return Manifest(
            version=manifest.VERSION,
            format=asked.format,
            rows=files[0].rows,
            content_hash=files[0].sha256,
            inputs=_inputs(asked, self._chosen),
            files=files,
            counts=building.counts(),
            sources=self._sources,
            provenance="none" if none else "sandbox",
            verdicts=judged.read(self._reader, self._sound(), self._rules),
            options={
                **asdict(asked.rows),
                "parquet": asked.parquet,
                "leave_out": asked.leave_out,
                "rules": asked.rules,
            },
            recipe=asdict(asked.recipe),
            split={
                "by": "task",
                **asdict(asked.held_out),
                "train": sorted(tasks - self._held_out),
                "held_out": sorted(self._held_out),
            },
            tokenizers={path: _hash(path) for path in sorted(building.tokenizers)},
            dialects=sorted(building.dialects),
            base=sorted({one.base for one in self._chosen}),
            left_out=[*building.refused, *building.untrained],
            remarks=dict(sorted(building.remarks.items())),
            traps=[*self._advice(), *building.format.traps],
            versions={"houston": version("houston-agents")},
            drawn=building.drawn(),
            ids_from=dict(sorted(building.ids_from.items())),
        )

    def _advice(self) -> list[str]:
        models = sorted({(one.base, one.dialect) for one in self._chosen})
        return [said] if (said := self._building.format.advice(models)) else []


def _flags(problem: ConfigurationError) -> ConfigurationError:
    """Rows cannot be rendered as asked; the same for every rollout of that engine."""
    return ConfigurationError(
        problem.cause,
        "Nothing was exported.",
        f"{problem.next.rstrip('.')}: --dialect NAME --tokenizer PATH; or a format of messages",
    )


def _inputs(asked: Asked, chosen: list[Chosen]) -> str:
    """SHA-256 of everything that decides what is in the files, as far as it is known beforehand."""
    options: dict[str, Any] = asdict(asked)
    options.pop("force")
    known = [(one.rollout.id, one.rollout.last_seq, one.past_seq) for one in chosen]
    told = msgspec.json.encode([options, known, version("houston-agents"), manifest.VERSION])
    return hashlib.sha256(told).hexdigest()


def _hash(path: str) -> str:
    file = Path(path) / "tokenizer.json" if Path(path).is_dir() else Path(path)
    with file.open("rb") as data:
        return hashlib.file_digest(data, "sha256").hexdigest()
