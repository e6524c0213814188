"""How much of each message from a person a model is shown, where all of it does not fit its window.

Pure arithmetic over texts: the worker, a resumed worker and every reader come to the same cut. The
whole text stays in the journal; `real_user.render` says what is not shown.
"""

from collections.abc import Callable, Mapping, Sequence

from houston_shared import real_user
from houston_shared.records import Delivered

BEGINNING = 160
"""Characters that every message keeps before a newer one is shown whole."""
LEAST = 16
"""A beginning shorter than this says nothing: the message is left out."""
Cost = Callable[[str], int]


def utf8(text: str) -> int:
    """Cost in bytes, which every reader can count."""
    return len(text.encode("utf-8", "replace"))


def fit(guidance: Sequence[Delivered], room: int, cost: Cost = utf8) -> Mapping[str, int]:
    """By id, how many characters of each message that does not fit whole are shown.

    guidance: oldest first. room: what all may cost, as rendered. Every message keeps its
    beginning, the newest first if that is too much already; then the newest are shown whole, as
    long as there is room. Messages that are not named are shown whole, those with 0 left out.
    """
    if cost(real_user.render(guidance)) <= room:
        return {}
    told = dict.fromkeys((one.id for one in guidance), 0)
    left = room - cost(real_user.render(guidance, told))  # with room to say how many are left out
    costs: dict[str, int] = {}
    for newer, one in enumerate(reversed(guidance)):
        length = min(len(one.text), BEGINNING)
        if not newer and _cost(one, length, cost) > left:
            length = _longest(one, left, cost)
        taken = _cost(one, length, cost)
        if not length or taken > left:
            break
        told[one.id], costs[one.id] = length, taken
        left -= taken
    for one in reversed(guidance):
        if one.id not in costs or told[one.id] == len(one.text):
            continue
        told[one.id] = _longest(one, left + costs[one.id], cost) or told[one.id]
        left -= _cost(one, told[one.id], cost) - costs[one.id]
    whole = {one.id for one in guidance if told[one.id] == len(one.text)}
    return {id: length for id, length in told.items() if id not in whole}


def _cost(one: Delivered, length: int, cost: Cost) -> int:
    shown = {} if length >= len(one.text) else {one.id: length}
    return cost(real_user.render([one], shown))


def _longest(one: Delivered, room: int, cost: Cost) -> int:
    """Most characters of a message that cost at most `room`; 0 when that is next to nothing."""
    if _cost(one, len(one.text), cost) <= room:
        return len(one.text)
    low, high = 0, len(one.text)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _cost(one, middle, cost) <= room else (low, middle)
    return low if low >= LEAST else 0
