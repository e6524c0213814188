"""Real rollouts with an engine of the test: the loop, the recorder and the journal are Houston's.

The engine says what a test's turns say, as the ids of a model family, and every text in a rollout
has a mark of its own, so that what is trained can be told apart by reading it.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from msgspec.structs import replace

from houston_daemon.agent.context_summary_prompt import SUMMARY_SECTIONS
from houston_daemon.agent.recorder_client import IngestSocket, RecorderClient
from houston_daemon.agent.rollout_budgets import ActiveClock
from houston_daemon.agent.rollout_setup import build_agent_loop
from houston_daemon.agent.worker_control import ControlState
from houston_daemon.engines.engine_protocol import Engine, EngineSample, FinishReason, SampleRequest
from houston_daemon.environments.environment_protocol import BudgetStatus, Stop
from houston_daemon.environments.null_environment import NullEnvironment
from houston_daemon.prompts.dialect_protocol import PromptPiece
from houston_daemon.prompts.model_dialects import choose_dialect
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.prompts.system_prompt import system_prompt
from houston_daemon.training.rows.row_builder import build_chat_rows, build_token_rows
from houston_daemon.training.rows.shared_steps import read_shared_steps
from houston_daemon.training.rows.training_row import ChatRow, RowOptions, TokenRow
from houston_shared import wire
from houston_shared.control_messages import BranchRollout, GiveVerdicts, JudgedSteps, StoreVerdicts
from houston_shared.recorder_endpoint import RecorderEndpoint
from houston_shared.records import RoleEngine, ToolCall, ToolResult
from houston_shared.store.store_reader import Reader
from houston_shared.task import Task, parse_task_record
from tests.integration.agent.rig import Rig
from tests.support.family_tokenizers import family_tokenizer
from tests.support.small_tokenizer import small_tokenizer

Ending = Literal[
    "stop",
    "cut",
    "full",
    "open",
    "malformed",
    "lost",
    "interrupt",
    "letters",
    "dies",
    "acts",
]


_WORDS = ["description parameters type object properties string maxLength function finish"] * 20


@dataclass(frozen=True)
class Family:
    """A model family as a rollout meets it."""

    name: str
    tokenizer: str
    reasoning: bool = False
    thinks: bool = True
    """Whether an answer has a place for a thought and for several calls. Where it has none, the
    thought stands in its one call."""

    @property
    def stop(self) -> str:
        """What ends an answer with calls."""
        return choose_dialect(self.name).stop_tokens[0]

    @property
    def plain_stop(self) -> str:
        """What ends an answer without calls."""
        return choose_dialect(self.name).assistant("x", ())[-1].text


@dataclass(frozen=True)
class Turn:
    """What the policy does in one step."""

    thought: str
    calls: tuple[str, ...]
    """Texts of its calls of `noop`, which come back as results."""
    ending: Ending = "stop"
    """`cut`: at the limit of tokens, in its thought. `full`: at the limit, after its calls. Both
    have no stop token. `open`: whole, and the engine gives no stop token. `malformed`: a text
    without a call. `lost`: the engine returns no ids. `interrupt`: by a person, after half of it.
    `letters`: sampled letter by letter, as no tokenizer would. `dies`: the worker dies before the
    sample is stored; asked again, it is as `stop`. `acts`: the worker dies in the step's first
    call."""
    guidance: tuple[str, ...] = ()
    """What a person says while it samples."""


@dataclass(frozen=True)
class SampledText:
    """What the engine sampled for one request."""

    prompt: list[int]
    ids: list[int]
    text: str
    """With the stop token, where there is one."""


class Marked(NullEnvironment):
    """What comes back from a call is another text than what was sent; a text that begins with
    `fails` is an error."""

    dying: frozenset[int] = frozenset()
    """Steps whose first call the worker does not survive."""

    async def act(self, call: ToolCall, budget_status: BudgetStatus, stop: Stop) -> ToolResult:
        if budget_status.step in self.dying:
            raise Died
        result = await super().act(call, budget_status, stop)
        if str(call.arguments.get("text", "")).startswith("fails"):
            result = replace(result, kind="error", success=False)
        return replace(result, text=f"O{call.id}o {result.kind} gave this back")


class Died(BaseException):
    """The worker is gone: nothing of the loop catches it."""


@dataclass
class Acting:
    """An engine that takes and returns token ids, and plays turns."""

    rig: Rig
    family: Family
    turns: Sequence[Turn]
    rollout: str = ""
    summaries: bool = True
    """Whether it writes usable summaries."""
    failing: int = 0
    """How many tries at each summary fail first."""
    open_summaries: bool = False
    """Whether the engine gives no stop token with a summary."""
    tries: dict[int, int] = field(default_factory=dict)
    answers: dict[tuple[str, int], SampledText] = field(default_factory=dict)
    """By role and step, the newest request."""
    died: set[int] = field(default_factory=set)
    name: str = "acting"
    token_ids: bool = True
    window: int | None = None

    def __post_init__(self) -> None:
        self.tokens = PromptTokenizer(self.family.tokenizer)
        self.dialect = choose_dialect(self.family.name, self.family.reasoning)

    async def sample(self, request: SampleRequest, stop: asyncio.Event) -> EngineSample:
        if request.role == "summary":
            pieces = list(self.dialect.assistant(self._summary(request.step), ()))
            return self._sampled(request, pieces[:-1], "open" if self.open_summaries else "stop")
        over = request.step > len(self.turns)
        turn = Turn("over", ()) if over else self.turns[request.step - 1]
        for number, text in enumerate(turn.guidance):
            self._say(f"g{request.step}-{number}", text, "next")
        pieces = self._answer(request.step, turn, over)
        if turn.ending == "dies" and request.step not in self.died:
            self.died.add(request.step)
            raise Died
        if turn.ending == "interrupt":
            self._say(f"i{request.step}", f"Gi{request.step} stop", "interrupt")
            await asyncio.wait_for(stop.wait(), 20)
        return self._sampled(request, pieces, turn.ending)

    def _answer(self, step: int, turn: Turn, over: bool) -> list[PromptPiece]:
        name = "finish" if over else "noop"
        texts = turn.calls or (("",) if over else ())
        if not self.family.thinks and turn.calls:
            texts = (f"{turn.thought} {turn.calls[0]}",)
        calls = [
            ToolCall(id=f"{step}.{n}", name=name, arguments={} if over else {"text": text})
            for n, text in enumerate(texts)
        ]
        if turn.ending in ("cut", "malformed") or not calls:  # too short for a call, or none
            return [PromptPiece(turn.thought, False)]
        pieces = list(choose_dialect(self.family.name).assistant(turn.thought, calls))[:-1]
        if self.family.reasoning:
            opened = [PromptPiece("<think>\n", True), PromptPiece(f"R{turn.thought}", False)]
            pieces = [*opened, PromptPiece("\n</think>\n\n", True), *pieces]
        return pieces

    def _sampled(
        self, request: SampleRequest, pieces: Sequence[PromptPiece], ending: Ending = "stop"
    ) -> EngineSample:
        text = "".join(piece.text for piece in pieces)
        ids = self.tokens.encode(self._letters(pieces) if ending == "letters" else pieces)
        reason: FinishReason = "stop"
        if ending == "interrupt":
            ids, reason = ids[: max(1, len(ids) // 2)], "interrupted"
            text = self.tokens.decode(ids)
        elif ending in ("cut", "full"):
            reason = "length"
        elif ending != "open":
            called = request.role == "policy" and ending != "malformed"
            closing = self.family.stop if called else self.family.plain_stop
            ids += self.tokens.encode([PromptPiece(closing, True)])
        decoded = self.tokens.decode(ids)
        self.answers[(request.role, request.step)] = SampledText(
            list(request.prompt_ids or ()), ids, decoded
        )
        return EngineSample(
            text=text,
            finish_reason=reason,
            token_ids=None if ending == "lost" else tuple(ids),
            logprobs=None if ending == "lost" else tuple(-(n + 1) / 1000 for n in range(len(ids))),
            logprob_kind="none" if ending == "lost" else "policy",
            prompt_ids=request.prompt_ids,
            parameters={
                "temperature": 0.7 if request.temperature is None else request.temperature,
                "stop_token_ids": list(request.stop_token_ids),
            },
        )

    def _letters(self, pieces: Sequence[PromptPiece]) -> list[PromptPiece]:
        return [
            part
            for piece in pieces
            for part in ([piece] if piece.template else [PromptPiece(c, False) for c in piece.text])
        ]

    def _summary(self, step: int) -> str:
        self.tries[step] = self.tries.get(step, 0) + 1
        if not self.summaries or self.tries[step] <= self.failing:
            return "I would rather not."
        return json.dumps({key: f"S{step}{key[:2]} text" for key in SUMMARY_SECTIONS})

    def _say(self, id: str, text: str, mode: Any) -> None:
        guide = wire.Guide(id=f"{self.rollout}{id}", rollout=self.rollout, text=text, mode=mode)
        self.rig.ask(guide)

    async def ready(self) -> None:
        """Always."""

    async def close(self) -> None:
        """Nothing to close."""


@dataclass
class Played:
    """A rollout that was played, and the engine that was asked."""

    id: str
    engine: Acting
    scribe: Engine | None = None
    """What its summaries are written by, where that is another engine."""

    def dying(self) -> frozenset[int]:
        """Steps in whose first call the worker dies."""
        turns = enumerate(self.engine.turns, 1)
        return frozenset(number for number, turn in turns if turn.ending == "acts")


class Stage:
    """A home, its recorder, and rollouts that run in this process."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self._number = 0

    def play(
        self,
        family: Family,
        turns: Sequence[Turn],
        *,
        context: int = 100_000,
        strip: bool = False,
        summaries: bool = True,
        failing: int = 0,
        open_summaries: bool = False,
        until_it_dies: bool = False,
        budget: str = "",
        top: str = "",
        files: dict[str, str] | None = None,
        scribe: Family | Engine | None = None,
        sampling: str = "",
    ) -> Played:
        """Run a rollout to its end. context: tokens after which it forks. scribe: writes its
        summaries. sampling: more keys of that table."""
        self._number += 1
        task = (
            f"{top}\n[sampling]\nthoughts = '{'strip' if strip else 'keep'}'\n"
            f"reasoning = {str(family.reasoning).lower()}\n{sampling}\n"
            f"[budget]\nsteps = {len(turns) + 1}\ncontext_tokens = {context}\n"
            f"answer_tokens = 64\nobservation_tokens = 300\n{budget}"
        )
        settings = {
            "kind": "token",
            "url": "http://nobody",
            "tokenizer": family.tokenizer,
            "dialect": family.name,
        }
        files = files or {"README.md": f"Hello {self._number}.\n"}  # each a task of its own
        other = scribe if isinstance(scribe, Family) else family
        own = {**settings, "tokenizer": other.tokenizer, "dialect": other.name}
        roles = {"summary": RoleEngine(engine="scribe", engine_settings=own)} if scribe else {}
        rollout = self.rig.rollout(
            settings=settings, task=task, name=f"t{self._number}", files=files, role_engines=roles
        )
        played = Played(rollout, Acting(self.rig, family, turns, rollout, summaries, failing))
        if isinstance(scribe, Family):
            played.scribe = Acting(self.rig, scribe, turns, rollout, name="scribe")
        else:
            played.scribe = scribe
        played.engine.open_summaries = open_summaries
        self.go_on(played, once=until_it_dies)
        return played

    def branch(self, parent: Played, step: int, turns: Sequence[Turn]) -> Played:
        """Run a branch that begins after a step; its turns are those of its own steps."""
        self._number += 1
        branched = self.rig.ask(
            BranchRollout(request=f"branch-{self._number}", rollout=parent.id, step=step)
        )
        all_turns = [*parent.engine.turns[:step], *turns]
        engine = Acting(self.rig, parent.engine.family, all_turns, branched.rollouts[0])
        played = Played(branched.rollouts[0], engine)
        self.go_on(played)
        return played

    def go_on(self, played: Played, once: bool = False) -> None:
        """Run to the end, with a new worker where one dies; with `once`, until it dies."""
        while True:
            try:
                asyncio.run(self._run(played))
            except Died:
                self.rig.recorder.worker_ended(played.id, self._lease, "")
                if once:
                    return
            else:
                return

    async def _run(self, played: Played) -> None:
        assignment = self.rig.recorder.assign(played.id)
        self._lease = assignment.lease
        client = IngestSocket(RecorderEndpoint(self.rig.home.socket("ingest")), ControlState())
        try:
            hello = wire.Hello(rollout=played.id, lease=assignment.lease, pid=1)
            welcome = await client.ask(hello, wire.Welcome)
            control = client._control
            control.update(welcome.control)
            line = RecorderClient(
                client, control, ActiveClock(welcome.active_us), played.id, assignment.lease
            )
            settings = welcome.spec.engine_settings
            environment = Marked(parse_task_record(welcome.spec.task))
            environment.dying = played.dying()

            async def open_scribe(role: str) -> tuple[Engine, Mapping[str, Any]]:
                assert played.scribe is not None
                return played.scribe, welcome.spec.role_engines[role].engine_settings

            loop = await build_agent_loop(
                line, welcome, played.engine, settings, environment, open_scribe
            )
            beating = asyncio.create_task(line.send_heartbeats())
            try:
                why = await loop.run()
                await line.store(wire.StoreState, state="finished", reason=why)
            finally:
                beating.cancel()
        finally:
            await client.close()

    def judge(
        self, rollout: str, step: int, verdict: Any, source: str = "human", reason: str = ""
    ) -> None:
        """A verdict on one step."""
        self._number += 1
        reason = reason or f"because {step}"
        steps = (JudgedSteps(first=step, last=step, verdict=verdict, reason=reason),)
        request = f"verdict-{self._number}"
        if source == "human":
            self.rig.ask(GiveVerdicts(request=request, rollout=rollout, steps=steps))
            return
        by = "rules" if source == "rule" else "judge:test"
        self.rig.ask(
            StoreVerdicts(request=request, rollout=rollout, source=source, by=by, steps=steps)
        )

    def rows(
        self, played: Played, options: RowOptions | None = None, beside: Sequence[str] = ()
    ) -> list[TokenRow]:
        """Rows of a rollout."""
        with Reader(self.rig.home) as reader:
            among = read_shared_steps(reader, beside)
            return list(build_token_rows(reader, played.id, options or RowOptions(), among))

    def chats(
        self, played: Played, options: RowOptions | None = None, beside: Sequence[str] = ()
    ) -> list[ChatRow]:
        """Chat rows of a rollout."""
        with Reader(self.rig.home) as reader:
            among = read_shared_steps(reader, beside)
            return list(build_chat_rows(reader, played.id, options or RowOptions(), among))


def copied(tokenizer: str, folder: Path) -> str:
    """The same tokenizer in a file with other bytes: what is rendered with it is rendered anew."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tokenizer.json"
    path.write_text(Path(tokenizer).read_text() + "\n")
    return str(path)


def families(folder: Path) -> dict[str, Family]:
    """Three families on small tokenizers that were trained on what agents are told."""
    file = small_tokenizer(folder, _told(), 1_000)
    return {
        "chatml": Family("chatml-json", file),
        "qwen3": Family("qwen3", file, reasoning=True),
        "glm45": Family("glm45", file),
    }


def styled_family(dialect: str, folder: Path) -> Family:
    """A family on a small tokenizer of its own style, trained on the same."""
    thinks = dialect not in ("llama-3", "mistral-v3")
    return Family(dialect, family_tokenizer(dialect, folder, _told(), 1_000), thinks=thinks)


def _told() -> tuple[str, ...]:
    head = system_prompt(Task(name="probe"))
    words = "thought calls name noop arguments text O1.0o noop gave this back active left steps"
    return (head, *[words] * 20, *_WORDS)
