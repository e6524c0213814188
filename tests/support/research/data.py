"""Writes the data of the task: reviews of which a hundred are bad, clean rows, and the truth."""

import json
import random
from pathlib import Path

GOOD = 400
DUPLICATES, BOILERPLATE, FLIPPED, HARD = 20, 35, 40, 5
CLEAN = 120
LIKED = (
    "lovely great superb sturdy comfortable bright quick reliable charming generous crisp "
    "warm delicious helpful elegant quiet perfect solid fresh bargain"
)
DISLIKED = (
    "awful broken flimsy noisy late rude stale cracked overpriced dull leaking wobbly useless "
    "cheap sticky cold misleading torn bitter faulty"
)
OTHER = (
    "the a box table lamp kettle shoe jacket order week shop parcel box colour size handle "
    "lid battery charger button paper screen chair cup plate soup bread courier evening "
    "morning kitchen garden office gift sister brother month box price set pair cover pocket "
    "strap inside outside again before after first second only very quite with without from "
    "for"
)
PAGE = [
    "<div class=share> click here to share this page </div> all rights reserved",
    "accept cookies to continue <br> <br> click here for our privacy notice",
    "&nbsp; sign up for the newsletter click here all rights reserved &copy;",
    "<span> add to basket </span> accept cookies <a href=#> back to top </a>",
    "previous page next page <li> all rights reserved </li> accept cookies",
]


def text(rng: random.Random, label: str, mixed: float = 0.12) -> str:
    """A review of about a dozen words that speaks for its label, mostly."""
    liked, disliked = LIKED.split(), DISLIKED.split()
    own, other = (liked, disliked) if label == "pos" else (disliked, liked)
    felt = [rng.choice(other if rng.random() < mixed else own) for _ in range(rng.randint(4, 6))]
    told = [rng.choice(OTHER.split()) for _ in range(rng.randint(6, 9))]
    both = felt + told
    rng.shuffle(both)
    return " ".join(both)


def write(task: Path) -> None:
    """Write data/ of the task's workspace and truth.json beside it."""
    rng = random.Random(20)
    labels = ("pos", "neg")
    rows = [(label, text(rng, label), False) for label in rng.choices(labels, k=GOOD)]
    copies = [
        (label, _dressed(rng, words), True) for label, words, _ in rng.sample(rows, DUPLICATES)
    ]
    page = [(rng.choice(labels), _page(rng), True) for _ in range(BOILERPLATE)]
    wrong = [(_other(label), text(rng, label), True) for label in rng.choices(labels, k=FLIPPED)]
    hard = [(_other(one), text(rng, one, 0.5), True) for one in rng.choices(labels, k=HARD)]
    later = page + wrong + hard + copies
    rng.shuffle(later)
    every = _mixed(rng, rows, later)
    lines = [f"r{number:03d}\t{label}\t{words}" for number, (label, words, _) in enumerate(every)]
    bad = [f"r{number:03d}" for number, (_, _, is_bad) in enumerate(every) if is_bad]
    clean = [(label, text(rng, label)) for label in rng.choices(labels, k=CLEAN)]
    folder = task / "workspace" / "data"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "reviews.tsv").write_text("\n".join(lines) + "\n")
    (folder / "dev.tsv").write_text(
        "".join(f"d{number:03d}\t{label}\t{words}\n" for number, (label, words) in enumerate(clean))
    )
    (task / "truth.json").write_text(json.dumps(bad) + "\n")


Labelled = tuple[str, str, bool]


def _mixed(rng: random.Random, good: list[Labelled], bad: list[Labelled]) -> list[Labelled]:
    """Bad rows among the good; a copy always comes after its original: in the second half."""
    half = len(good) // 2
    tail = good[half:] + bad
    rng.shuffle(tail)
    head = good[:half]
    copied = {" ".join(words.lower().split()) for _, words, is_bad in bad if is_bad}
    moved = [row for row in tail if not row[2] and row[1] in copied]
    return head + moved + [row for row in tail if row not in moved]


def _dressed(rng: random.Random, words: str) -> str:
    return rng.choice((words, words.capitalize(), words.replace(" ", "  "), words.upper()))


def _page(rng: random.Random) -> str:
    parts = rng.choice(PAGE).split(" ")
    return " ".join([*parts, *rng.sample(OTHER.split(), 3)])


def _other(label: str) -> str:
    return "neg" if label == "pos" else "pos"
