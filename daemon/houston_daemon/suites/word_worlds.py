"""The suite `word-worlds`: which worlds there are, by which rule a box is right, who acts in them.

A world asks for an item, perhaps of a place; the rule of its level says which box holds it, and is
the same in every split, since it is what is to be learned. What differs is the codes: each of the
1,000 belongs to one split, so that no paper of a split is in another. Also the scripted agent whose
traces a tiny policy begins with: it opens wrong boxes and says what nobody understands.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from houston_daemon.environments.word_world import UNKNOWN_WORDS

BOXES = ("red", "blue", "green", "black", "white", "brown", "pink", "gray")
ITEMS = ("coin", "map", "rope", "lamp", "seal", "note", "ring", "cup")
PLACES = ("kitchen", "garden", "cellar", "attic")
DIGITS = tuple("0123456789")
SPLITS = ("train", "validation", "test")
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


LEVELS = {
    level.name: level
    for level in (WordLevel("easy", 4, 1), WordLevel("medium", 8, 1), WordLevel("hard", 8, 4))
}


@dataclass(frozen=True, slots=True)
class WordWorldTask:
    """One world."""

    instructions: str
    right: str
    codes: dict[str, str]


def word_world(level: WordLevel, split: str, index: int) -> WordWorldTask:
    """World number `index` of a split; the same at every call."""
    source = random.Random(f"word-worlds/1/{level.name}/{split}/{index}")
    item, place = source.randrange(level.boxes), source.randrange(level.places)
    factor, offset = _RULES[place]
    boxes = BOXES[: level.boxes]
    codes = source.sample(split_codes(split), level.boxes)
    where = f" in {PLACES[place]}" if level.places > 1 else ""
    return WordWorldTask(
        instructions=f"find {ITEMS[item]}{where}",
        right=boxes[(factor * item + offset) % level.boxes],
        codes=dict(zip(boxes, codes, strict=True)),
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
    world: WordWorldTask, source: random.Random, wrong: float, errors: float, steps: int
) -> Iterator[str]:
    """The answers of an imperfect agent, in order, until it has entered a code.

    wrong: how often it goes for a wrong box. errors: how often a step is one that fails; not in the
    last three of `steps`.
    """
    others = [box for box in world.codes if box != world.right]
    box = source.choice(others) if source.random() < wrong else world.right
    plan: Sequence[str] = (f"open {box}", "read", f"enter {' '.join(world.codes[box])}")
    spare = steps - len(plan)
    for action in plan:
        while spare > 0 and source.random() < errors:
            spare -= 1
            yield wrong_actions(world, source)
        yield action
