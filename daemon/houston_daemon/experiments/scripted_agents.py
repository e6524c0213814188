"""Scripted agents and annotators: an imperfect expert, an obedient agent, and people who speak to
them.

The expert knows a solution and drifts from it by bad habits, as a stronger model does in APOLLO;
the annotator speaks only when it drifts, in general words. The obedient agent does what it is
told at once; its annotator gives one order after the other. Everything follows from the
conversation and a seed, so that a rollout that goes on after a kill goes on alike.
"""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from houston_daemon.experiments.experiment_home import ExperimentHome
from houston_daemon.experiments.experiment_recipe import AnnotatorRecipe, ExpertRecipe
from houston_daemon.experiments.order_vocabulary import OrderMessage, OrderWords
from houston_daemon.experiments.scripted_endpoint import (
    ChatHistory,
    ScriptedAgent,
    ScriptedTurn,
)

FINISH_ACTION = "finish"


class SolutionProgress(NamedTuple):
    """Where an agent stands."""

    steps_done: int
    """Commands of the solution that were done, in order; others may lie between."""
    idle_steps: int
    """Latest steps in a row that brought it no further."""
    was_on_path: tuple[bool, ...]
    """By step, whether it was the next command of the solution, or ended a solved world."""


def measure_progress(solution: Sequence[str], actions: Sequence[str]) -> SolutionProgress:
    """Compare.

    actions: what each step did: the command, `finish`, or another tool's name; one a step.
    """
    steps_done, idle, on_the_way = 0, 0, []
    for action in actions:
        solved = steps_done == len(solution)
        forward = (
            action == FINISH_ACTION
            if solved
            else plain_command(action) == plain_command(solution[steps_done])
        )
        steps_done += forward and not solved
        idle = 0 if forward else idle + 1
        on_the_way.append(forward)
    return SolutionProgress(steps_done, idle, tuple(on_the_way))


def plain_command(command: str) -> str:
    """A command as it is compared: small letters, single spaces."""
    return " ".join(command.lower().split())


ANNOTATOR_AUTHOR = "simulated-annotator"
MISUNDERSTOOD_WORDS = (
    "No known action matches that input",  # ScienceWorld
    "That's not a verb I recognise", "You can't see any such thing",  # TextWorld
    "I didn't understand", "I only understood you as far as", "This requires",
)  # fmt: skip


class SimulatedAnnotator:
    """What one annotator says to one agent."""

    def __init__(self, words: AnnotatorRecipe, solution: Sequence[str]) -> None:
        self._words = words
        self._solution = solution

    def next_message(self, actions: Sequence[str], observation: str, spoken: int) -> str:
        """What to say now, or "".

        actions: what each closed step did. observation: that of the last one. spoken: messages
        that it said before.
        """
        progress = measure_progress(self._solution, actions)
        solved = progress.steps_done == len(self._solution)
        if (
            solved
            or progress.idle_steps < self._words.patience
            or progress.idle_steps % self._words.patience
        ):
            return ""
        failing = any(sign in observation for sign in MISUNDERSTOOD_WORDS)
        words = self._words.failing if failing else self._words.idle
        return words[spoken % len(words)] if words else ""


LOOK_COMMANDS = {
    "scienceworld": ("look around", "inventory"),
    "textworld": ("look", "inventory"),
}
"""By environment, the commands that change nothing."""
CommandList = Sequence[str]
_WRONG_PHRASES = ("try to {}", "now {} please", "begin to {}", "help me {}")
_SATISFIED_THOUGHT = "This may be good enough."
_LOST_THOUGHT = "I have another look."
_GUESS_THOUGHT = "Perhaps it is said so."
_BACK_THOUGHT = "The person is right: back to the task, step by step."


class ImperfectExpert:
    """See the module. world: what solves the world of a conversation, and looks that it knows."""

    def __init__(
        self,
        habits: ExpertRecipe,
        seed: int,
        world: Callable[[ChatHistory], tuple[CommandList, CommandList]],
    ) -> None:
        self._habits = habits
        self._seed = seed
        self._world = world

    def __call__(self, chat: ChatHistory) -> ScriptedTurn:
        """The next step."""
        solution, looks = self._world(chat)
        progress = measure_progress(solution, chat.actions)
        if progress.steps_done == len(solution):
            return ScriptedTurn("The task is done.", FINISH_ACTION, {})
        command = solution[progress.steps_done]
        habit = "" if plain_command(command) in looks else self._habit(chat, progress.steps_done)
        has_message = any(
            chat.guidance_after_step(chat.step - 1 - back) for back in range(progress.idle_steps)
        )
        if not habit or has_message:
            return _act_turn(_BACK_THOUGHT if chat.heard else "", command)
        return self._drift_turn(chat, habit, progress, command, looks)

    def _habit(self, chat: ChatHistory, place: int) -> str:
        """The habit that takes over before a command of the solution; "" for none."""
        source = self._source(chat, place, "habit")
        if not self._habits.habits or source.random() >= self._habits.drift:
            return ""
        return source.choice(self._habits.habits)

    def _drift_turn(
        self,
        chat: ChatHistory,
        habit: str,
        progress: SolutionProgress,
        command: str,
        looks: CommandList,
    ) -> ScriptedTurn:
        place, idle = progress.steps_done, progress.idle_steps
        most = self._habits.steps - (habit == "quit")
        if idle >= most:
            gives_up = self._source(chat, place, "end").random() < self._habits.gives_up
            return (
                ScriptedTurn(_SATISFIED_THOUGHT, FINISH_ACTION, {})
                if gives_up
                else _act_turn("", command)
            )
        if habit == "quit":
            return _act_turn(_SATISFIED_THOUGHT, looks[idle % len(looks)])
        if habit == "guess":
            return _act_turn(
                _GUESS_THOUGHT, _WRONG_PHRASES[(place + idle) % len(_WRONG_PHRASES)].format(command)
            )
        return _act_turn(_LOST_THOUGHT, looks[idle % len(looks)])

    def _source(self, chat: ChatHistory, place: int, purpose: str) -> random.Random:
        return random.Random(f"{self._seed}:{chat.task}:{place}:{purpose}")


def _act_turn(thought: str, command: str) -> ScriptedTurn:
    return ScriptedTurn(thought, "act", {"action": command})


_MAIN_ARGUMENTS = ("path", "file_path", "file_name", "dir_path", "command", "search_term")
"""The argument that names what a call is about."""


WAIT_SECONDS = 3
"""Of one sleep of an agent that waits for orders: as long as a person's word may wait for it."""
_LOOK_TURN = ScriptedTurn("", "list_files", {"path": "."})
_WAIT_TURN = ScriptedTurn("", "sleep", {"sleep_time": WAIT_SECONDS})


class ObedientAgent:
    """See the module.

    place: what distinguishes a conversation's rollout, the same in another run. seconds: how long
    each sample takes, so that people can speak between. waits: whether it sleeps while nobody
    speaks, writes no thoughts and never finishes, instead of following its own plan.
    """

    def __init__(
        self,
        orders: Iterable[OrderMessage],
        words: OrderWords,
        steps: int,
        place: Callable[[ChatHistory], str],
        waits: bool = False,
    ) -> None:
        self._calls = {order.text: order for order in orders}
        self._words = words
        self._steps = steps
        self._place = place
        self._waits = waits

    def __call__(self, chat: ChatHistory) -> ScriptedTurn:
        """The next step."""
        for text in reversed(chat.heard):
            if order := self._calls.get(text):
                if self._waits:
                    return ScriptedTurn("", order.tool, order.arguments)
                thought = f"The person comes first: {_main_argument(order.tool, order.arguments)}."
                return ScriptedTurn(thought, order.tool, order.arguments)
        if self._waits:
            return _LOOK_TURN if chat.step == 1 else _WAIT_TURN
        if chat.step >= self._steps:
            return ScriptedTurn("All was looked at.", "finish", {})
        return self._own_turn(chat)

    def _own_turn(self, chat: ChatHistory) -> ScriptedTurn:
        """Its own plan: a look at the workspace first, then at this and that."""
        if chat.step == 1:
            return ScriptedTurn("I begin with an overview.", "list_files", {"path": "."})
        source = random.Random(f"{self._place(chat)}:{chat.step}")
        name = source.choice(self._words.names)
        folder, word = source.choice(self._words.folders), source.choice(self._words.words)
        name_call: tuple[str, Mapping[str, Any]] = source.choice(
            (
                ("list_files", {"path": "."}),
                ("run_command", {"command": f"du -sh {folder}"}),
                ("run_command", {"command": f"grep -rl {word} ."}),
                ("think", {"thought": f"{name} may say more about {word}."}),
            )
        )
        return ScriptedTurn("I go on with my own plan.", *name_call)


def _main_argument(tool: str, arguments: Mapping[str, Any]) -> str:
    main = next((str(arguments[key]) for key in _MAIN_ARGUMENTS if key in arguments), "")
    return f"{tool} {main}".strip()


ORDERS_BETWEEN_PAUSES = 3


class OrderingAnnotator:
    """Plays `agent` and speaks to it. Quiet steps follow every three orders: one, or in turn as
    many as `pauses` says.

    orders: those of a conversation's rollout; none where nobody speaks.
    """

    def __init__(
        self,
        agent: ScriptedAgent,
        experiment_home: ExperimentHome,
        orders: Callable[[ChatHistory], Sequence[OrderMessage]],
        pauses: Sequence[int] = (1,),
    ) -> None:
        self._agent = agent
        self._experiment_home = experiment_home
        self._orders = orders
        self._pauses = pauses

    def __call__(self, chat: ChatHistory) -> ScriptedTurn:
        """The agent's turn; before it is given, what the person says meanwhile is queued."""
        if orders := self._orders(chat):
            self._speak(chat, orders)
        return self._agent(chat)

    def _speak(self, chat: ChatHistory, orders: Sequence[OrderMessage]) -> None:
        guidance = self._experiment_home.guidance(chat.rollout)
        due = len(guidance) > 0 and len(guidance) % ORDERS_BETWEEN_PAUSES == 0
        quiet = due and self._pausing(chat)
        if quiet or any(message.state == "queued" for message in guidance):
            return
        texts = {message.text for message in guidance}
        if unsaid := [order for order in orders if order.text not in texts]:
            self._experiment_home.queue_guidance(chat.rollout, unsaid[0].text, ANNOTATOR_AUTHOR)

    def _pausing(self, chat: ChatHistory) -> bool:
        """Whether one of the latest steps, as many as this pause has, heard something."""
        pauses = len(chat.all_guidance) // ORDERS_BETWEEN_PAUSES
        steps = self._pauses[pauses % len(self._pauses)]
        return any(chat.guidance_after_step(chat.step - 1 - back) for back in range(steps))


def share_orders(orders: Sequence[OrderMessage], count: int) -> list[Sequence[OrderMessage]]:
    """The orders of each of `count` rollouts: all get equally many, the first ones first."""
    share = len(orders) // count
    return [orders[at * share : (at + 1) * share] for at in range(count)]
