"""`word-worlds` as a person guides it: the sampler goes for a wrong box and says what nobody
understands, each so often, and does what it is told. The person speaks after a wrong box was
opened, at no other time, and masks that step.
"""

import re

from bench.guided_samplers.guided_sampling import (
    SPLIT,
    GuidedSuite,
    PlayedCall,
    done_calls,
    drawn,
)

from houston_daemon.experiments.scripted_endpoint import ChatHistory, ScriptedTurn
from houston_daemon.suites.imperfect_agents import AgentHabits
from houston_daemon.suites.word_worlds import LEVELS, WordWorldTask, word_world, wrong_actions

LEVEL = LEVELS["medium"]
MOST_ERRORS = 3
"""Failed calls of a rollout, so that five steps are left of eight: a wrong box, its paper, and the
right box, its paper, its code."""
_ARGUMENTS = {"open": "box", "enter": "code"}
"""By tool the argument that takes all words; of others they are a fault."""
_NAMED_BOX = re.compile(r"open (\w+)")


def next_turn(
    chat: ChatHistory, world: WordWorldTask, key: str, habits: AgentHabits
) -> ScriptedTurn:
    """What the sampler does next. key: what its draws follow from."""
    calls, failed = done_calls(chat)
    source = drawn(key, chat.step)
    if failed < MOST_ERRORS and source.random() < habits.errors:
        return _turn(wrong_actions(world, source))
    box = _chosen_box(chat, world, key, habits)
    opened = [at for at, call in enumerate(calls) if call.name == "open"]
    if not opened or _box(calls[opened[-1]]) != box:
        return _turn(f"open {box}")
    if "read" not in [call.name for call in calls[opened[-1] :]]:
        return _turn("read")
    return _turn(f"enter {' '.join(world.codes[box])}")


def _chosen_box(chat: ChatHistory, world: WordWorldTask, key: str, habits: AgentHabits) -> str:
    """The one that it was told last, else its own choice."""
    if chat.all_guidance:
        return str(_NAMED_BOX.findall(chat.all_guidance[-1])[-1])
    source = drawn(key, "box")
    others = [box for box in world.codes if box != world.right]
    return source.choice(others) if source.random() < habits.wrong else world.right


def _turn(action: str) -> ScriptedTurn:
    name, _, words = action.partition(" ")
    return ScriptedTurn("", name, {_ARGUMENTS.get(name, "words"): words} if words else {})


def _box(call: PlayedCall) -> str:
    return " ".join(map(str, call.arguments.values()))


def next_message(chat: ChatHistory, world: WordWorldTask) -> str:
    """What the person says now, or "": a wrong box is open, and nothing was said of it."""
    opened = [call for call in done_calls(chat)[0] if call.name == "open"]
    if chat.all_guidance or not opened or not opens_wrong_box(world, opened[-1]):
        return ""
    return f"No, open {world.right}."


def opens_wrong_box(world: WordWorldTask, call: PlayedCall) -> bool:
    """Whether it opens a box of the world that does not hold the item."""
    return call.name == "open" and _box(call) in world.codes and _box(call) != world.right


GUIDED_WORDS = GuidedSuite(
    name="word-worlds",
    task=lambda index: word_world(LEVEL, SPLIT, index),
    turn=next_turn,
    message=next_message,
    condemns=opens_wrong_box,
    reason="the wrong box was opened",
)
