"""Write the data of this task again: `python3 make_data.py` gives the same bytes every time.

Of the candidates about a quarter are good: the others have a wrong label, repeat one of a few
messages with small changes, or say nothing.
"""

import json
import random
from pathlib import Path

HERE = Path(__file__).parent
CHANCE = random.Random(31)
WORDS = {
    "weather": "rain sun storm cloud wind fog frost snow thunder heat drizzle hail breeze sky cold"
    " forecast umbrella flood ice humid warm degrees lightning sleet gust",
    "kitchen": "soup bread oven salt pepper onion knife plate butter flour stew garlic boil roast"
    " spoon pan cheese lemon rice sugar bake recipe dough sauce pot",
    "travel": "train ticket platform luggage border hotel passport ferry airport bus map delay"
    " station driver seat suitcase departure gate tram journey visa cabin tunnel coach toll",
    "garden": "seed soil rake tulip hedge weed compost root leaf shovel lawn rose bulb prune"
    " harvest fence pond blossom moss orchard branch spade ivy nettle sprout",
}
TOPICS = tuple(WORDS)
COMMON = (
    "the a we you it is was and then very quite some more again here there now please today"
    " perhaps really still good bad new old think know want need look find take put said went"
).split()


def message(topic: str, telling: int = 3) -> str:
    """A message with some telling words of its topic, and now and then one of another."""
    words = CHANCE.sample(WORDS[topic].split(), telling)
    if CHANCE.random() < 0.4:
        words.append(CHANCE.choice(WORDS[CHANCE.choice(TOPICS)].split()))
    words += [CHANCE.choice(COMMON) for _ in range(CHANCE.randrange(4, 8))]
    CHANCE.shuffle(words)
    return " ".join(words)


def changed(text: str) -> str:
    """The same message with two common words more."""
    words = text.split()
    for _ in range(2):
        words.insert(CHANCE.randrange(len(words)), CHANCE.choice(COMMON))
    return " ".join(words)


def candidates() -> list[tuple[str, str]]:
    """Messages with labels, in no order."""
    found = []
    for number in range(300):
        topic = TOPICS[number % 4]
        found.append((message(topic), topic))
    for _ in range(360):  # a wrong label, more often one of the first two
        topic = CHANCE.choice(TOPICS)
        wrong = CHANCE.choice([one for one in (*TOPICS[:2], *TOPICS) if one != topic])
        found.append((message(topic), wrong))
    copied = [(message(TOPICS[0], 4), TOPICS[0]) for _ in range(3)]
    found += [(changed(text), topic) for text, topic in copied * 120]
    for _ in range(180):
        text = " ".join(CHANCE.choice(COMMON) for _ in range(9))
        found.append((text, CHANCE.choice(TOPICS)))
    CHANCE.shuffle(found)
    return found


def main() -> None:
    """Candidates and the first choice into the workspace, the test beside it."""
    rows = [
        {"id": number, "text": text, "label": label}
        for number, (text, label) in enumerate(candidates())
    ]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (HERE / "workspace" / "candidates.jsonl").write_text(lines, encoding="utf-8")
    (HERE / "workspace" / "selected.json").write_text(json.dumps(list(range(80))) + "\n")
    test = [(message(topic, 2), topic) for topic in TOPICS * 100]
    lines = "".join(json.dumps({"text": text, "label": label}) + "\n" for text, label in test)
    (HERE / "held_out" / "test.jsonl").write_text(lines, encoding="utf-8")


if __name__ == "__main__":
    main()
