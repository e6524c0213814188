"""Write the data of this task again: `python3 make_data.py` gives the same bytes every time.

The language Vessi is invented. English sentences follow one pattern; Vessi puts the time first, the
adjective behind its noun and the verb at the end.
"""

import json
import random
from pathlib import Path

HERE = Path(__file__).parent
CHANCE = random.Random(20)
NOUNS = (
    "fisher baker teacher child soldier merchant painter sailor farmer singer dog horse goat bird"
    " fish tree house boat bridge road river lamp knife basket letter coat drum stone cart ladder"
).split()
ADJECTIVES = (
    "old young red green heavy quiet clever hungry broken small tall proud wet dry empty golden"
).split()
VERBS = "sees carries sells follows paints finds hides washes counts breaks lifts buys".split()
PLACES = "harbour market forest village tower garden valley school mill island".split()
TIMES = "today tomorrow yesterday soon often never".split()
WORDS = (*NOUNS, *ADJECTIVES, *VERBS, *PLACES, *TIMES)


def invented() -> str:
    """A word of two or three syllables."""
    syllables = ("ka", "lo", "mi", "re", "su", "ta", "ve", "shi", "on", "ur", "pel", "dra")
    return "".join(CHANCE.choice(syllables) for _ in range(CHANCE.choice((2, 3))))


def lexicon() -> dict[str, str]:
    """English word → Vessi word, one to one."""
    found: dict[str, str] = {}
    for word in WORDS:
        other = invented()
        while other in found.values():
            other = invented()
        found[word] = other
    return {**found, "the": "e", "in": "na"}


VESSI = lexicon()


def pair(nouns: list[str]) -> tuple[str, str]:
    """A sentence in Vessi and in English."""
    doer, thing = CHANCE.choice(nouns), CHANCE.choice(nouns)
    adjective, verb = CHANCE.choice(ADJECTIVES), CHANCE.choice(VERBS)
    place, time = CHANCE.choice(PLACES), CHANCE.choice(TIMES)
    english = f"the {adjective} {doer} {verb} the {thing} in the {place} {time}"
    order = [time, "the", doer, adjective, "the", thing, "in", "the", place, verb]
    return " ".join(VESSI[word] for word in order), english


def lines(file: Path, rows: list[tuple[str, str]]) -> None:
    """Pairs as JSON Lines."""
    text = "".join(json.dumps({"vessi": v, "english": e}) + "\n" for v, e in rows)
    file.write_text(text, encoding="utf-8")


def table(rows: list[tuple[str, str]], titles: tuple[str, str]) -> str:
    """An HTML table, the first of each pair in the first column."""
    head = f"<tr><th>{titles[0]}</th><th>{titles[1]}</th></tr>"
    body = "".join(f"<tr><td>{a}</td>\n<td>{b}&nbsp;</td></tr>\n" for a, b in rows)
    return f"<table>{head}\n{body}</table>\n"


def news(sources: Path) -> None:
    """Twelve articles with both languages; in five of them a line of one side is missing."""
    for number in range(1, 13):
        rows = [pair(NOUNS) for _ in range(8)]
        vessi, english = [v for v, _ in rows], [e for _, e in rows]
        if number in (2, 3, 6, 9, 11):
            side = CHANCE.choice((vessi, english))
            del side[CHANCE.randrange(4)]
        text = "\n".join(["== vessi ==", *vessi, "", "== english ==", *english, ""])
        (sources / "news" / f"{number:02}.txt").write_text(text, encoding="utf-8")


def main() -> None:
    """Sources and the seed into the workspace, the test beside it."""
    workspace, sources = HERE / "workspace", HERE / "workspace" / "sources"
    seed = [pair(NOUNS[:9]) for _ in range(12)]
    lines(workspace / "seed.jsonl", seed)
    lines(workspace / "train.jsonl", seed)
    book = [pair(NOUNS[:20]) for _ in range(50)]
    first = table([(e, v) for v, e in book[:25]], ("English", "Vessi"))
    second = table(book[25:], ("Vessi", "English"))
    page = f"<html><body><h1>Phrases</h1>\n{first}<h2>More</h2>\n{second}</body></html>\n"
    (sources / "phrasebook.html").write_text(page, encoding="utf-8")
    news(sources)
    rows = ["vessi\tenglish\tnote"]
    for word in CHANCE.sample(NOUNS, len(NOUNS)):
        rows.append(f"{VESSI[word]}\t{word}\t")
        if CHANCE.random() < 0.4:  # a meaning that it had once
            rows.append(f"{VESSI[word]}\t{CHANCE.choice(NOUNS)}\tarchaic")
    (sources / "glossary.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    talk = [(pair(NOUNS)[0], pair(NOUNS)[1]) for _ in range(60)]  # an answer is no translation
    text = "".join(f"> {question}\n{answer}\n\n" for question, answer in talk)
    (sources / "forum.txt").write_text(text, encoding="utf-8")
    lines(HERE / "held_out" / "test.jsonl", [pair(NOUNS) for _ in range(120)])


if __name__ == "__main__":
    main()
