"""Write the data of this task again: `python3 make_data.py` gives the same bytes every time.

A small world of people, towns and provinces, told in documents of a few sentences each, and
questions about it that need one, two or three facts.
"""

import json
import random
from pathlib import Path

HERE = Path(__file__).parent
CHANCE = random.Random(71)
PARTS = ("bel", "tor", "mira", "ka", "lun", "ost", "ver", "din", "sha", "pol", "gri", "nem")
FORMS = (
    "The {r} of {s} is {v}.",
    "{v} is the {r} of {s}.",
    "As everybody knows, {s} has {v} as its {r}.",
    "Ask for the {r} of {s} and you will hear of {v}.",
)
FILLERS = (
    "The weather there is mild for most of the year.",
    "Travellers praise the soup and complain about the roads.",
    "Little else is written about it in the older books.",
    "A fair is held in autumn, if the harvest allows it.",
    "Opinions differ on who built the first bridge.",
)
RELATIONS = {
    "person": {"birthplace": "town", "teacher": "person"},
    "town": {"mayor": "person", "province": "province", "river": "river"},
    "province": {"capital": "town", "governor": "person"},
}


def names(count: int, taken: set[str]) -> list[str]:
    """New invented names."""
    found: list[str] = []
    while len(found) < count:
        name = "".join(CHANCE.sample(PARTS, CHANCE.choice((2, 2, 3)))).capitalize()
        if name not in taken:
            taken.add(name)
            found.append(name)
    return found


def world() -> dict[tuple[str, str], str]:
    """(relation, subject) → value."""
    taken: set[str] = set()
    kinds = {"person": 40, "town": 25, "province": 8, "river": 12}
    made = {kind: names(count, taken) for kind, count in kinds.items()}
    facts: dict[tuple[str, str], str] = {}
    for kind, relations in RELATIONS.items():
        for subject in made[kind]:
            for relation, of in relations.items():
                others = [one for one in made[of] if one != subject]
                facts[relation, subject] = CHANCE.choice(others)
    return facts


def kind_of(relation: str) -> str:
    """The kind of thing that a relation leads to."""
    return next(found[relation] for found in RELATIONS.values() if relation in found)


def question(facts: dict[tuple[str, str], str], hops: int) -> tuple[str, str]:
    """A question and its answer."""
    (relation, subject), value = CHANCE.choice(sorted(facts.items()))
    text = f"the {relation} of {subject}"
    for _ in range(hops - 1):
        onward = RELATIONS.get(kind_of(relation))
        if onward is None:
            return question(facts, hops)
        relation = CHANCE.choice(sorted(onward))
        text, value = f"the {relation} of {text}", facts[relation, value]
    return f"What is {text}?", value


def main() -> None:
    """Documents and questions into the workspace, the answers beside it."""
    facts = world()
    by_subject: dict[str, list[str]] = {}
    for (relation, subject), value in facts.items():
        said = CHANCE.choice(FORMS).format(r=relation, s=subject, v=value)
        by_subject.setdefault(subject, []).append(said)
    documents = []
    for subject, sentences in by_subject.items():
        told = [*sentences, *CHANCE.sample(FILLERS, 3)]
        CHANCE.shuffle(told)
        documents.append({"title": subject, "text": " ".join(told)})
    CHANCE.shuffle(documents)
    asked: dict[str, str] = {}
    for hops, count in ((1, 20), (2, 45), (3, 70)):
        while len(asked) < count:
            asked.update([question(facts, hops)])
    rows = [{"id": n, "question": text} for n, text in enumerate(asked)]
    answers = {str(n): value for n, value in enumerate(asked.values())}
    workspace = HERE / "workspace"
    lines = "".join(json.dumps(one) + "\n" for one in documents)
    (workspace / "corpus.jsonl").write_text(lines, encoding="utf-8")
    lines = "".join(json.dumps(one) + "\n" for one in rows)
    (workspace / "questions.jsonl").write_text(lines, encoding="utf-8")
    (HERE / "held_out" / "answers.json").write_text(json.dumps(answers, indent=1) + "\n")


if __name__ == "__main__":
    main()
