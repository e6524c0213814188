"""The suite `small-workstation`: files to find, read and change, made by template and seed.

Four kinds of tasks, from writing a given word to changing a number in a file that the task does not
name. Sentences and words of one split are in no other. Each task has the calls that solve it.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

PLACES = {
    "train": (
        "paris",
        "oslo",
        "cairo",
        "lima",
        "quito",
        "delhi",
        "tokyo",
        "accra",
        "dakar",
        "minsk",
        "sofia",
        "riga",
    ),
    "validation": ("rome", "kyiv", "hanoi"),
    "test": ("bern", "doha", "seoul", "tunis"),
}
THINGS = {
    "train": (
        "apples",
        "chairs",
        "books",
        "lamps",
        "shoes",
        "bricks",
        "cups",
        "pens",
        "rugs",
        "bells",
    ),
    "validation": ("forks", "tents"),
    "test": ("boots", "drums", "ropes"),
}
_SAY: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "train": {
        "write": ("Write the word {word} into {out}, then finish.",
                  "{out} must say {word} and nothing else."),
        "copy": ("Read {name} and write the number in it, alone, into {out}.",
                 "Copy the number of {name} into {out}."),
        "find": ("One file is about {place}. Write the number in it, alone, into {out}.",
                 "Find the file on {place} and put its number into {out}."),
        "change": ("In the file about {place}, change the number to {number}.",
                   "The file on {place} has a wrong number: make it {number}."),
    },
    "validation": {
        "write": ("Please put {word} into {out}.",),
        "copy": ("{out} should hold the number that {name} has.",),
        "find": ("Which number belongs to {place}? Write it into {out}.",),
        "change": ("Correct the file of {place}: its number is {number}.",),
    },
    "test": {
        "write": ("Make a file {out} whose only word is {word}.",),
        "copy": ("Take the number from {name}; write it into {out}.",),
        "find": ("Look for {place} in the files; write the number beside it into {out}.",),
        "change": ("Replace the number in the file about {place} by {number}.",),
    },
}  # fmt: skip
KINDS = ("write", "copy", "find", "change")
Calls = list[dict[str, object]]


@dataclass(frozen=True, slots=True)
class FileTask:
    """One task."""

    kind: str
    instructions: str
    files: Mapping[str, str]
    expected_files: Mapping[str, str]
    solution: Calls
    """Calls that solve it, one a step, as scripts have them."""


def file_task(split: str, index: int) -> FileTask:
    """Task number `index` of a split; the kinds take turns."""
    source = random.Random(f"small-workstation/1/{split}/{index}")
    kind = KINDS[index % len(KINDS)]
    places = source.sample(PLACES[split], 3)
    names = [f"{letter}{source.randrange(10)}.txt" for letter in source.sample("abcdefgh", 3)]
    thing = source.choice(THINGS[split])
    numbers = [str(number) for number in source.sample(range(10, 100), 4)]
    lines = [f"{place}: {number} {thing}" for place, number in zip(places, numbers, strict=False)]
    files = dict(zip(names, lines, strict=True))
    at = source.randrange(3)
    words = {
        "word": thing,
        "out": source.choice(("answer.txt", "out.txt", "result.txt")),
        "name": names[at],
        "place": places[at],
        "number": numbers[3],
    }
    say = source.choice(_SAY[split][kind]).format(**words)
    make = _MAKERS[kind]
    expected_files, solution = make(files, names[: at + 1], words, numbers[at])
    return FileTask(kind, say, files, expected_files, solution)


TaskFilesAndCalls = tuple[dict[str, str], Calls]
Words = Mapping[str, str]


def _call(name: str, **arguments: str) -> dict[str, object]:
    return {"name": name, "arguments": arguments}


def _write_solution(path: str, text: str, before: Calls) -> TaskFilesAndCalls:
    calls = [*before, _call("write", path=path, text=text), _call("finish")]
    return {path: text}, calls


def _write_task(files: Words, names: list[str], words: Words, number: str) -> TaskFilesAndCalls:
    return _write_solution(words["out"], words["word"], [])


def _copy_task(files: Words, names: list[str], words: Words, number: str) -> TaskFilesAndCalls:
    return _write_solution(words["out"], number, [_call("read", path=names[-1])])


def _read_calls(names: list[str]) -> Calls:
    """A look at every file up to the one that is meant."""
    return [_call("list"), *(_call("read", path=name) for name in names)]


def _find_task(files: Words, names: list[str], words: Words, number: str) -> TaskFilesAndCalls:
    return _write_solution(words["out"], number, _read_calls(names))


def _change_task(files: Words, names: list[str], words: Words, number: str) -> TaskFilesAndCalls:
    text = files[names[-1]].replace(number, words["number"])
    return _write_solution(names[-1], text, _read_calls(names))


_MAKERS: Mapping[str, Callable[[Words, list[str], Words, str], TaskFilesAndCalls]] = {
    "write": _write_task,
    "copy": _copy_task,
    "find": _find_task,
    "change": _change_task,
}
