"""The suites of words: their worlds, the rule by which a box is right, and the scripted agent.

A world asks for one or several items, perhaps of a place. The rule of its level says which box
holds an item; it is the same in every split, since it is what is to be learned. Only the codes
differ: each of the 1,000 belongs to one split, so no paper of a split is in another. The scripted
agent opens wrong boxes and says words that the world does not know; its traces are the first that a
tiny policy learns from.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache

from houston_daemon.environments.word_world import UNKNOWN_WORDS

BOXES = ("red", "blue", "green", "black", "white", "brown", "pink", "gray")
ITEMS = ("coin", "map", "rope", "lamp", "seal", "note", "ring", "cup")
PLACES = ("kitchen", "garden", "cellar", "attic")
DIGITS = tuple("0123456789")
_RULES = ((3, 1), (5, 4), (7, 6), (1, 3))
"""By place, factor and offset: item i of n lies in box (factor × i + offset) modulo n."""
WRONG_WORDS = ("search", "take", "push")
"""What the scripted agent tries besides, and no world knows."""
VOCABULARY = (
    "find", "in", "look", "open", "read", "enter", "paper", "says", "nothing", "right", "wrong",
    "error", *UNKNOWN_WORDS.split(), "box", "the", "world", "is", "over", *WRONG_WORDS,
    *BOXES, *ITEMS, *PLACES, *DIGITS, "no", "not", "go", "back", "do", "again", "then", "use",
    "first", "yes", "stop", "try",
)  # fmt: skip
"""Words of a tiny policy: the worlds' own, and some that people say to agents."""


@dataclass(frozen=True, slots=True)
class WordLevel:
    """How hard worlds are."""

    name: str
    boxes: int
    places: int
    """Rules to learn; 1 names no place."""
    items: int = 1
    """Asked for in a world; with several the score is the share of those that were found."""
    steps: int = 8
    """Most steps of an agent."""
    wrong: float = 0.8
    """How often scripted traces go for a wrong box, so that they solve about a fifth."""
    criticised: float = 0.0
    """Share of the scripted traces that are told a critique; of half as many there is one to learn
    to write. Where fewer are told one, a small model takes it for noise and obeys none."""
    traces: int = 1_200
    """That a policy begins with."""


LEVELS = {
    level.name: level
    for level in (
        WordLevel("easy", 4, 1),
        WordLevel("medium", 8, 1),
        WordLevel("hard", 8, 4),
        WordLevel("errands", 8, 1, items=2, steps=10, wrong=0.4, criticised=0.9, traces=2_000),
    )
}


CRITIC_WORDS = ("critic", "found", "missed", "of")
"""Further words of levels with critiques; policies of the others stay as they always were."""


def level_words(level: WordLevel) -> tuple[str, ...]:
    """The words of a policy that begins with worlds of a level."""
    return VOCABULARY + (CRITIC_WORDS if level.criticised else ())


@dataclass(frozen=True, slots=True)
class WordWorldTask:
    """One world."""

    instructions: str
    right: str
    """The right box of an only item; empty where there are several."""
    codes: dict[str, str]
    wanted: dict[str, str] = field(default_factory=dict)
    """Of several items, the right box of each, in the order in which they are asked for."""

    @property
    def right_boxes(self) -> tuple[str, ...]:
        """The right box of each item, in order."""
        return tuple(self.wanted.values()) or (self.right,)


def word_world(level: WordLevel, split: str, index: int) -> WordWorldTask:
    """World number `index` of a split; the same at every call."""
    source = random.Random(f"word-worlds/1/{level.name}/{split}/{index}")
    if level.items == 1:  # as the first version drew: its worlds stay the same
        items = [source.randrange(level.boxes)]
    else:
        items = source.sample(range(level.boxes), level.items)
    place = source.randrange(level.places)
    factor, offset = _RULES[place]
    boxes = BOXES[: level.boxes]
    codes = source.sample(split_codes(split), level.boxes)
    where = f" in {PLACES[place]}" if level.places > 1 else ""
    right = {ITEMS[item]: boxes[(factor * item + offset) % level.boxes] for item in items}
    return WordWorldTask(
        instructions=f"find {' '.join(right)}{where}",
        right=next(iter(right.values())) if level.items == 1 else "",
        codes=dict(zip(boxes, codes, strict=True)),
        wanted=right if level.items > 1 else {},
    )


@cache
def split_codes(split: str) -> tuple[str, ...]:
    """The codes of a split: four fifths of all for `train`, a tenth for each of the others."""
    codes = [f"{number:03}" for number in range(1_000)]
    random.Random("word-worlds/1/codes").shuffle(codes)
    first, last = {"train": (0, 800), "validation": (800, 900), "test": (900, 1_000)}[split]
    return tuple(codes[first:last])


def wrong_actions(world: WordWorldTask, source: random.Random) -> str:
    """Something that the world does not understand."""
    item = world.instructions.split()[1]
    choices = [f"{word} {item}" for word in WRONG_WORDS]
    return source.choice([*choices, "read box", f"open {item}", "look box"])


def scripted_answers(
    world: WordWorldTask,
    source: random.Random,
    wrong: float,
    errors: float,
    steps: int,
    told: Mapping[str, str],
) -> Iterator[str]:
    """The answers of an imperfect agent, in order, until it has entered a code for each item.

    wrong: how often it chooses a wrong box. errors: how often a step fails, as long as enough of
    `steps` are left. told: by item the box that a critique names; the agent then chooses that one.
    """
    plan: list[str] = []
    for item, right in zip(world.wanted or ("",), world.right_boxes, strict=True):
        others = [box for box in world.codes if box != right]
        box = source.choice(others) if source.random() < wrong else right
        box = told.get(item, box)
        plan += (f"open {box}", "read", f"enter {' '.join(world.codes[box])}")
    spare = steps - len(plan)
    for action in plan:
        while spare > 0 and source.random() < errors:
            spare -= 1
            yield wrong_actions(world, source)
        yield action
