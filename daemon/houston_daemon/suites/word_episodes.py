"""Episodes in worlds of words without a daemon: the same environment, dialect and ids, much faster.

Every part is the one that a rollout uses (`WordWorldEnvironment`, `WordsDialect`,
`PromptRenderer`), so the ids are exactly those that the loop sends and stores; a test compares an
episode with the ledger of a rollout. There is no journal, and guidance only from a script: rollouts
for learning by reward are Houston's own.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from houston_daemon.agent.agent_loop import is_finish_accepted
from houston_daemon.environments.environment_protocol import BudgetStatus
from houston_daemon.environments.environment_registry import EnvironmentSetup
from houston_daemon.environments.tool_arguments import Catalog
from houston_daemon.environments.word_world import WORD_ACTIONS, WordWorldEnvironment
from houston_daemon.prompts.prompt_renderer import PromptRenderer
from houston_daemon.prompts.prompt_tokenizer import PromptTokenizer
from houston_daemon.prompts.words_dialect import END, WordsDialect
from houston_daemon.review.critic.critique_prompt import Attempt
from houston_daemon.review.rollout_trace import RolloutTrace
from houston_daemon.suites.word_worlds import WordWorldTask, scripted_answers
from houston_shared.context_messages import with_critique
from houston_shared.records import (
    DeliveredGuidance,
    ObservationBody,
    Refinement,
    RolloutSpec,
    StepRecord,
    TaskRecord,
)
from houston_shared.store.step_queries import ERASED_SAMPLE
from houston_shared.task import Task
from houston_shared.task_tables import WordWorldSettings

_CHARACTERS = 600
_GOES_ON = BudgetStatus(1, 1, 1.0, 0)
_SPEC = RolloutSpec(
    rollout="",
    task=TaskRecord(name="episode", folder="", definition="", instructions=""),
    engine="",
    engine_settings={},
)
_NO_SAMPLE = msgspec.structs.replace(ERASED_SAMPLE, finish_reason="stop", thought="")


class WordSpeaker:
    """What all episodes of one tokenizer share."""

    def __init__(self, tokenizer: Path) -> None:
        self.dialect = WordsDialect()
        self.tokens = PromptTokenizer(str(tokenizer))
        self.renderer = PromptRenderer(self.dialect, self.tokens, "keep")
        self.catalog = Catalog({action.name: action for action in WORD_ACTIONS})
        self.tools = {tool.name: tool for tool in self.catalog.tools}
        self.end = next(id for id, stop in self.renderer.stops.items() if stop == END)

    def answer_ids(self, text: str) -> list[int]:
        """An answer's ids with their stop token."""
        return self.tokens.encode(self.dialect.assistant(text, ()))


@dataclass(slots=True)
class WordEpisode:
    """One episode, as it goes."""

    speaker: WordSpeaker
    world: WordWorldTask
    most_steps: int
    critique: str = ""
    """What it is told of an earlier attempt, as a refinement is."""
    ids: list[int] = field(init=False)
    """The context so far, up to the opening of the next answer."""
    answers: list[tuple[int, int]] = field(default_factory=list)
    """Where each answer begins and ends in `ids`."""
    failures: int = 0
    """Calls that failed."""
    done: bool = False
    score: float = 0.0
    steps: list[StepRecord] = field(default_factory=list)
    """What was done and came of it, as the journal would have it."""
    _task: Task = field(init=False)
    _environment: WordWorldEnvironment = field(init=False)

    def __post_init__(self) -> None:
        settings = WordWorldSettings(
            right=self.world.right, codes=self.world.codes, wanted=self.world.wanted
        )
        self._task = Task(name="episode", environment="word_world", word_world=settings)
        setup = EnvironmentSetup(_SPEC, self._task, _CHARACTERS)
        self._environment = WordWorldEnvironment(setup, self.speaker.catalog)
        refines = Refinement(rollout="", text=self.critique, critic="") if self.critique else None
        words = with_critique(self.world.instructions, refines)
        head = self.speaker.renderer.head("", (), words, False)
        self.ids = list(head.token_ids or ())

    def step(self, sampled: Sequence[int], instruction: str = "") -> None:
        """Take an answer with its stop token. instruction: a person's, after its observation."""
        speaker, number = self.speaker, len(self.answers) + 1
        self.answers.append((len(self.ids), len(self.ids) + len(sampled)))
        words = sampled[:-1] if sampled and sampled[-1] == speaker.end else sampled
        action = speaker.dialect.parse(speaker.tokens.decode(words), number, speaker.tools)
        results = [self._environment.answer(call, _GOES_ON) for call in action.calls]
        self.failures += sum(not result.success for result in results)
        for result in results:
            self.score = float(result.fields.get("overall_score", self.score))
        self.done = is_finish_accepted(results) or number >= self.most_steps
        # The dialect shows nothing of clock and budgets, which stand in the tail.
        guidance = (DeliveredGuidance(id="1", author="", text=instruction),) if instruction else ()
        sample = msgspec.structs.replace(
            _NO_SAMPLE, token_ids=tuple(sampled), calls=action.calls, malformed=action.malformed
        )
        observation = ObservationBody(tail="", finished=self.done)
        self.ids += speaker.renderer.render_step(number, sample, results, observation, guidance).ids
        self.steps.append(
            StepRecord(
                step=number,
                attempt=1,
                sample_seq=number,
                sample=sample,
                intents=(),
                results=tuple(results),
                observation=observation,
                guidance=guidance,
                at="",
                active_seconds=0.0,
            )
        )

    @property
    def missed(self) -> list[str]:
        """Of several items, those that were not found."""
        world = self._environment.world
        return [item for item in self.world.wanted if item not in world.found]

    def attempt(self) -> Attempt:
        """The episode as a critic reads it."""
        instructions = self.world.instructions
        trace = RolloutTrace("", self._task, instructions, {}, self.steps, ended=True)
        return Attempt(trace, self.score)


def scripted_episode(
    speaker: WordSpeaker,
    world: WordWorldTask,
    source: random.Random,
    *,
    wrong: float,
    errors: float,
    steps: int,
    ordered: float = 0.0,
    critique: str = "",
    told: Mapping[str, str] | None = None,
) -> WordEpisode:
    """An episode of the imperfect scripted agent (`word_worlds.scripted_answers`).

    ordered: how often a person names a random box for the first item, before its code is read, and
    is obeyed: this teaches a policy to follow people, and nothing about which box is right.
    critique, told: a critic's text, and by item the box that it names.
    """
    episode = WordEpisode(speaker, world, steps, critique)
    order = source.choice(list(world.codes)) if source.random() < ordered else ""
    obeyed = False
    for answer in scripted_answers(
        world, source, wrong, errors, steps - 3 * bool(order), told or {}
    ):
        if obeyed and answer.removeprefix("open ") not in world.codes:
            continue  # what it had meant to do for that item
        obeyed = False
        instruction = f"open {order}" if order and answer.startswith("open") else ""
        episode.step(speaker.answer_ids(answer), instruction)
        if instruction and not episode.done:
            for command in (instruction, "read", f"enter {' '.join(world.codes[order])}"):
                episode.step(speaker.answer_ids(command))
            if len(world.right_boxes) == 1:
                break
            order, obeyed = "", True
    return episode
