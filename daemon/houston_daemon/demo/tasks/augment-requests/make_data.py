"""Write the data of this task again: `python3 make_data.py` gives the same bytes every time.

Few requests to train on, all in the same words; the held-out ones say the same things in other
words, with slips of the fingers.
"""

import json
import random
from pathlib import Path

HERE = Path(__file__).parent
CHANCE = random.Random(43)
INTENTS = {
    "book": ["please book the table for {n}", "i want to reserve it tonight", "can you hold it"],
    "cancel": ["please cancel the table for {n}", "i want to drop it tonight", "can you scrap it"],
    "hours": ["please say when you open", "i want to know the hours tonight", "can you close it"],
    "menu": ["please show the dishes for {n}", "i want to see the menu tonight", "can you cook it"],
    "complain": ["please note the soup for {n} was cold", "i want to complain about the waiter",
                 "can you replace it"],
}  # fmt: skip
SYNONYMS = {
    "book": ["arrange", "schedule", "secure"],
    "reserve": ["hold", "save", "keep"],
    "table": ["place", "spot"],
    "seat": ["chair", "bench"],
    "cancel": ["withdraw", "revoke", "annul"],
    "booking": ["appointment", "arrangement"],
    "drop": ["undo", "forget", "remove"],
    "hold": ["retain", "grab"],
    "scrap": ["delete", "void"],
    "say": ["tell", "state"],
    "know": ["learn", "hear"],
    "open": ["unlock", "start"],
    "hours": ["times", "schedule"],
    "close": ["shut", "finish"],
    "menu": ["card", "list"],
    "dishes": ["meals", "plates", "courses"],
    "see": ["view", "browse"],
    "cook": ["prepare", "fry", "bake"],
    "show": ["display", "present"],
    "note": ["record", "mind"],
    "soup": ["broth", "stew", "starter"],
    "cold": ["chilly", "icy", "lukewarm"],
    "waiter": ["server", "staff", "barman"],
    "complain": ["object", "protest", "grumble"],
    "replace": ["exchange", "swap"],
    "tonight": ["later", "soon"],
    "please": ["kindly", "quickly"],
    "want": ["wish", "need"],
}
COUNTS = ("two", "three", "four", "five", "six")


def request(intent: str, form: int) -> str:
    """A request in the words of its form."""
    return INTENTS[intent][form].format(n=CHANCE.choice(COUNTS))


def slip(word: str) -> str:
    """A word with one letter left out, doubled, or two turned round."""
    if len(word) < 4:
        return word
    at = CHANCE.randrange(1, len(word) - 2)
    kind = CHANCE.randrange(3)
    if kind == 0:
        return word[:at] + word[at + 1 :]
    if kind == 1:
        return word[:at] + word[at] + word[at:]
    return word[:at] + word[at + 1] + word[at] + word[at + 2 :]


def said_otherwise(text: str) -> str:
    """The same request in other words."""
    words = []
    for word in text.split():
        if word in SYNONYMS and CHANCE.random() < 0.9:
            word = CHANCE.choice(SYNONYMS[word])
        words += [slip(one) if CHANCE.random() < 0.25 else one for one in word.split()]
    if CHANCE.random() < 0.5:
        words = [*CHANCE.choice(("hello there", "well then", "excuse me but")).split(), *words]
    return " ".join(words)


def main() -> None:
    """The few requests into the workspace, the test beside it."""
    train = [
        {"text": request(intent, form), "label": intent} for form in range(3) for intent in INTENTS
    ]
    test = [
        {"text": said_otherwise(request(intent, CHANCE.randrange(3))), "label": intent}
        for intent in list(INTENTS) * 60
    ]
    workspace = HERE / "workspace"
    for file, rows in (
        (workspace / "train.jsonl", train),
        (workspace / "augmented.jsonl", train),
        (HERE / "held_out" / "test.jsonl", test),
    ):
        file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    # What a thesaurus knows is more than what is needed, and part of it misleads.
    known = {word: sorted(others) for word, others in SYNONYMS.items()}
    known["cold"] = [*known["cold"], "table"]
    known["hours"] = [*known["hours"], "menu", "course"]
    known["open"] = [*known["open"], "rude", "candid"]
    known["book"] = [*known["book"], "novel", "complain"]
    (workspace / "thesaurus.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
