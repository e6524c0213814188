"""A solution: pairs from all sources but the forum, each source read for what it is.

Run in a copy of the workspace: `python3 solve.py FOLDER`.
"""

import html
import json
import re
import sys
from pathlib import Path


def phrasebook(file: Path) -> list[tuple[str, str]]:
    """Both tables, whichever language stands first."""
    found = []
    for table in re.findall(r"<table>(.*?)</table>", file.read_text(encoding="utf-8"), re.S):
        rows = re.findall(r"<t[hd]>(.*?)</t[hd]>\s*<t[hd]>(.*?)</t[hd]>", table, re.S)
        clean = [tuple(html.unescape(cell).strip() for cell in row) for row in rows]
        turned = clean[0][0] == "English"
        found += [(b, a) if turned else (a, b) for a, b in clean[1:]]
    return found


def news(folder: Path) -> list[tuple[str, str]]:
    """Articles whose two sides have the same number of lines."""
    found: list[tuple[str, str]] = []
    for file in sorted(folder.glob("*.txt")):
        _, vessi, english = re.split(r"== \w+ ==\n", file.read_text(encoding="utf-8"))
        sides = vessi.strip().splitlines(), english.strip().splitlines()
        if len(sides[0]) == len(sides[1]):
            found += zip(*sides, strict=True)
    return found


def glossary(file: Path) -> list[tuple[str, str]]:
    """Words with the meaning that they have now."""
    rows = [line.split("\t") for line in file.read_text(encoding="utf-8").splitlines()[1:]]
    return [(row[0], row[1]) for row in rows if row[2] != "archaic"]


def main() -> None:
    """Write train.jsonl."""
    workspace = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    sources = workspace / "sources"
    seed = [json.loads(line) for line in (workspace / "seed.jsonl").read_text().splitlines()]
    pairs = [(row["vessi"], row["english"]) for row in seed]
    pairs += phrasebook(sources / "phrasebook.html") + news(sources / "news")
    pairs += glossary(sources / "glossary.tsv")
    lines = [json.dumps({"vessi": vessi, "english": english}) + "\n" for vessi, english in pairs]
    (workspace / "train.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
