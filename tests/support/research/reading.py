"""What the agent reads while runs go on: searches, pages of the library, rows by eye."""

from collections.abc import Iterator
from typing import Any

Call = dict[str, Any]
Look = tuple[str, Call]
"""A thought and the call that follows from it."""
TOPICS = (
    ("near duplicate detection shingles", "near-duplicates.md", "Jaccard"),
    ("remove boilerplate markup stock phrases", "boilerplate.md", "phrase"),
    ("wrong labels held-out log-odds margin", "label-noise.md", "margin"),
    ("cross-validation folds copies", "cross-validation.md", "fold"),
    ("naive bayes smoothing short texts", "naive-bayes.md", "smoothing"),
    ("order of filtering stages data curation", "curriculum.html", "stage"),
    ("ablation one clean row accuracy", "ablations.md", "row"),
    ("read samples of removed rows by eye", "reading-samples.md", "rows"),
    ("add-one smoothing constant rare words", "smoothing.md", "constant"),
)


def call(name: str, **arguments: Any) -> Call:
    """A call of a step."""
    return {"name": name, "arguments": arguments}


def reading() -> Iterator[Look]:
    """Looks at the library, topic by topic, then at the rows themselves, without an end."""
    for query, page, keyword in TOPICS:
        yield from _topic(query, page, keyword)
    yield from _rows()


def _topic(query: str, page: str, keyword: str) -> Iterator[Look]:
    yield f"Meanwhile: what is known about {query}?", call("web_search", query=query, top_k=4)
    yield f"{page} fits; I read it while the run goes on.", call("web_browse", url=f"corpus:{page}")
    yield (
        f"Where does it speak of {keyword!r}? That is what I have to set.",
        call("web_page_search", keyword=keyword, context_lines=1),
    )
    if page.endswith("html"):
        yield "It points to more.", call("web_page_get_links")
    elif keyword in ("Jaccard", "margin", "smoothing"):
        yield "Is it said again further down?", call("web_page_search_next", context_lines=1)


def _rows() -> Iterator[Look]:
    marks = ("click", "cookies", "rights", "lovely", "awful", "broken", "great", "&nbsp;", "<div")
    for number, mark in enumerate(marks * 4):
        line = 1 + (37 * number) % 460
        yield (
            f"Metrics hide mistakes; I read rows from line {line} on by eye.",
            call("open_file", path="data/reviews.tsv", line_number=line, context_lines=8),
        )
        if number < len(marks):
            yield (
                f"How common is {mark!r} among the clean rows? It must not be a sign by itself.",
                call("search_file", search_term=mark, file_path="data/dev.tsv"),
            )
