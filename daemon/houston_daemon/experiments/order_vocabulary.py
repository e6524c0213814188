"""Plain orders to an agent, each with the call that follows it: drawn from a vocabulary by a
seed.

The vocabulary (`demo/experiments/orders.toml`) has two parts that share no file, folder, word or
phrase, so that what is measured was never trained. This module knows texts and calls; it starts
no rollout and asks no model.
"""

import json
import random
import re
from collections import deque
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from houston_shared.errors import ConfigurationError
from houston_shared.records import ToolCall
from houston_shared.toml_file import Settings, convert_toml, parse_toml, read_text_file

ORDERS_FILE = Path(__file__).parents[1] / "demo" / "experiments" / "orders.toml"
VocabularyPart = Literal["train", "held_out"]
_PATH_ARGUMENTS = ("dir_path", "path", "file_path")
"""Arguments that say where."""
_MAX_DRAWS = 100
"""Draws of one order: a kind that gives nothing new in so many is used up."""
NO_OPENING = ""
"""Stands among openings for a phrase as it is; both parts may have it."""
_PLACEHOLDER = re.compile(r"\$([a-z]+)")
_TYPO_LETTERS = 4
"""Letters of a word that is long enough for two of them to be swapped."""
_TYPO_SHARE = 0.5
"""Of the orders typed in a hurry, those with swapped letters."""


class OrderKind(Settings, frozen=True):
    """One kind of order: the call that follows it."""

    tool: str
    arguments: dict[str, Any] = {}


class OrderWords(Settings, frozen=True):
    """What one part draws from."""

    folders: tuple[str, ...]
    names: tuple[str, ...]
    words: tuple[str, ...]
    commands: tuple[str, ...]
    phrases: dict[str, tuple[str, ...]]
    texts: tuple[str, ...] = ()
    """Lines to write into a file."""
    seconds: tuple[int, ...] = ()
    """How long to wait."""
    openings: tuple[str, ...] = ()
    """What a phrase may begin with, such as "No, "; it then goes on in small letters."""
    careless: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.0
    """Share of orders that are typed in a hurry: small letters, no full stop, perhaps two letters
    swapped."""


class OrderVocabulary(Settings, frozen=True):
    """The whole file."""

    kinds: dict[str, OrderKind]
    train: OrderWords
    held_out: OrderWords


@dataclass(frozen=True, slots=True)
class OrderMessage:
    """One message of a person and what follows it."""

    text: str
    kind: str
    known: bool
    """Whether training gives orders of this kind, in other words."""
    tool: str
    arguments: Mapping[str, Any]
    """What the call must say."""


def read_vocabulary(path: Path = ORDERS_FILE) -> OrderVocabulary:
    """The vocabulary. Raises ConfigurationError, also where its two parts share something."""
    orders = convert_toml(parse_toml(read_text_file(path), str(path)), OrderVocabulary, str(path))
    for field in ("folders", "names", "words", "commands", "texts", "seconds", "openings"):
        _check_disjoint(getattr(orders.train, field), getattr(orders.held_out, field), field, path)
    for kind in orders.held_out.phrases:
        if kind not in orders.kinds:
            raise ConfigurationError(f"{path}: there are phrases for {kind!r}, an unknown kind.")
        trained = orders.train.phrases.get(kind, ())
        _check_disjoint(trained, orders.held_out.phrases[kind], f"phrases of {kind}", path)
    return orders


def _check_disjoint(
    trained: Sequence[object], held_out: Sequence[object], field: str, path: Path
) -> None:
    if shared_words := set(trained) & set(held_out) - {NO_OPENING}:
        raise ConfigurationError(
            f"{path}: the {field} {sorted(shared_words, key=str)} are in both parts.",
            "The measurement would use trained words.",
        )


def draw_orders(
    orders: OrderVocabulary, part: VocabularyPart, count: int, seed: int
) -> list[OrderMessage]:
    """`count` different orders of a part; kinds take turns, the same seed draws the same ones.

    A call is ordered again only when its kind has no others, and then in other words. Raises
    ConfigurationError when the vocabulary has too few.
    """
    source = random.Random(f"{seed}:{part}:orders")
    words: OrderWords = getattr(orders, part)
    drawn: dict[str, OrderMessage] = {}
    calls: set[str] = set()
    turns = deque(sorted(words.phrases))
    while turns and len(drawn) < count:
        kind = turns.popleft()
        draws = (_draw_order(orders, words, kind, source) for _ in range(_MAX_DRAWS))
        if (order := _first_new(draws, drawn, calls)) is not None:
            drawn[order.text] = order
            calls.add(_call_of_order(order))
            turns.append(kind)
    if len(drawn) < count:
        raise ConfigurationError(f"The vocabulary has no {count} different orders of {part}.")
    return list(drawn.values())


def _first_new(
    draws: Iterable[OrderMessage], texts: Container[str], calls: Container[str]
) -> OrderMessage | None:
    """The first with a call that was not drawn, else in words that were not; None for neither."""
    reworded = None
    for order in draws:
        if order.text not in texts:
            if _call_of_order(order) not in calls:
                return order
            reworded = reworded or order
    return reworded


def _call_of_order(order: OrderMessage) -> str:
    return json.dumps([order.tool, order.arguments], sort_keys=True)


def _draw_order(
    orders: OrderVocabulary, words: OrderWords, kind: str, source: random.Random
) -> OrderMessage:
    folder, name = source.choice(words.folders), source.choice(words.names)
    values: dict[str, str | int]
    values = {"folder": folder, "name": name, "word": source.choice(words.words)}
    values["file"] = source.choice((name, f"{folder}/{name}"))
    values["command"] = _fill_placeholders(source.choice(words.commands), values)
    if words.texts:
        values["text"] = source.choice(words.texts)
    if words.seconds:
        values["seconds"] = source.choice(words.seconds)
    call = orders.kinds[kind]
    return OrderMessage(
        text=_fill_placeholders(_draw_phrase(words, kind, source), values),
        kind=kind,
        known=kind in orders.train.phrases,
        tool=call.tool,
        arguments={key: _fill_placeholders(value, values) for key, value in call.arguments.items()},
    )


def _draw_phrase(words: OrderWords, kind: str, source: random.Random) -> str:
    """A phrase with its placeholders, as somebody would begin and type it."""
    phrase = source.choice(words.phrases[kind])
    if words.openings and (opening := source.choice(words.openings)):
        phrase = opening + phrase[0].lower() + phrase[1:]
    if words.careless and source.random() < words.careless:
        phrase = _type_carelessly(phrase, source)
    return phrase


def _type_carelessly(phrase: str, source: random.Random) -> str:
    """In small letters, without its last full stop, and in half of the cases with two letters of a
    word swapped; placeholders stay."""
    parts = phrase.rstrip(".").lower().split(" ")
    longer = [at for at, part in enumerate(parts) if part.isalpha() and len(part) >= _TYPO_LETTERS]
    if longer and source.random() < _TYPO_SHARE:
        at = source.choice(longer)
        word = parts[at]
        swap = source.randrange(1, len(word) - 1)
        parts[at] = word[:swap] + word[swap + 1] + word[swap] + word[swap + 2 :]
    return " ".join(parts)


def _fill_placeholders(text: Any, values: Mapping[str, str | int]) -> Any:
    """The text with its placeholders filled; one that stands alone keeps its value's type."""
    if not isinstance(text, str):
        return text
    if alone := _PLACEHOLDER.fullmatch(text):
        return values[alone.group(1)]
    return _PLACEHOLDER.sub(lambda match: str(values[match.group(1)]), text)


def follows_order(order: OrderMessage, calls: Sequence[ToolCall]) -> bool:
    """Whether an action does first what the order says: the right tool on the right thing.

    Only its first call counts; paths may be written with `./` before and `/` after. Arguments that
    the order does not name are free, except for a place other than the whole workspace.
    """
    if not calls or calls[0].error or calls[0].name != order.tool:
        return False
    arguments = calls[0].arguments
    expected = {**{key: "." for key in _PATH_ARGUMENTS if key in arguments}, **order.arguments}
    return all(_same_argument(arguments.get(key), value) for key, value in expected.items())


def _same_argument(argument: Any, expected: Any) -> bool:
    if not (isinstance(argument, str) and isinstance(expected, str)):
        return bool(argument == expected)
    return _plain_argument(argument) == _plain_argument(expected)


def _plain_argument(text: str) -> str:
    text = " ".join(text.split()).rstrip(".").strip("`'\"")
    return text.removeprefix("./").rstrip("/") or "."


def order_json(order: OrderMessage) -> dict[str, Any]:
    """For the run folder."""
    fields: dict[str, Any] = msgspec.to_builtins(order)
    return fields
