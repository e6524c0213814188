"""docs/grafana-dashboard.json: each of its queries is PromQL over figures that the page has."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest

from houston_daemon.service.prometheus_metrics import render_metrics
from tests.support.written_home import WrittenHome, sample
from tests.unit.service.test_prometheus_metrics import guidance, read, status, totals

FILE = Path(__file__).parents[3] / "docs" / "grafana-dashboard.json"
DASHBOARD: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
QUERIES = [
    pytest.param(target["expr"], target["legendFormat"], id=f"{panel['title']} {target['refId']}")
    for panel in PANELS
    for target in panel["targets"]
]
OF_PROMETHEUS = {"job", "instance"}
"""Labels that Prometheus gives to everything that it scrapes."""
NAMES = re.compile(r"houston_[a-z0-9_]+")
BACKUP_METRIC = "houston_backup_age_seconds"
"""There once there is a backup, which the home of these tests has none of."""


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, set[str]]]:
    """Every figure of a page on which everything is, with the names of its labels."""
    home = WrittenHome(tmp_path_factory.mktemp("dashboard") / "home")
    home.rollout("words-1111")
    home.step("words-1111", 1, sample("look", prompt_tokens=10, cached_tokens=5, cost=0.5))
    home.connection.execute("UPDATE steps SET attention = 'error'")
    home.connection.execute("UPDATE rollouts SET state = 'paused', paused_by = 'person:ada'")
    guidance(home, 1, 4.0)
    run = home.home.path / "training" / "sft-1"
    run.mkdir(parents=True)
    progress = '{"state":"running","step":1,"steps":2,"loss":1.5,"tokens_per_second":9.0}'
    (run / "progress.json").write_text(progress)
    now = status(
        "home",
        engines={"tiny": "ready"},
        restarts={"workers": 1},
        training={"sft-1": "step 1"},
        policies={"tiny": "policy@2"},
    )
    page = read(render_metrics(now, totals(home), home.home))
    yield {
        BACKUP_METRIC: set(),
        **{
            name: {label for pairs in values for label, _ in pairs} for name, values in page.items()
        },
    }
    home.close()


def parsed(query: str) -> promql_parser.Expr:
    """A query as Prometheus reads it, with a value for each of Grafana's variables."""
    return promql_parser.parse(query.replace("$__rate_interval", "5m").replace("$job", ".*"))


def parts(expression: Any) -> Iterator[Any]:
    """An expression and all in it."""
    yield expression
    for name in ("expr", "lhs", "rhs", "vector_selector"):
        if (inner := getattr(expression, name, None)) is not None:
            yield from parts(inner)
    for argument in getattr(expression, "args", ()):
        yield from parts(argument)


@pytest.mark.parametrize(("query", "legend"), QUERIES)
def test_a_query_asks_for_figures_that_the_page_has(
    query: str, legend: str, labels: dict[str, set[str]]
) -> None:
    every = list(parts(parsed(query)))
    selectors = [part for part in every if isinstance(part, promql_parser.VectorSelector)]
    names = {selector.name for selector in selectors}
    assert names == set(NAMES.findall(query)) and names, "all of them were found"
    assert names <= labels.keys()
    for selector in selectors:
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert "job" in asked, "one daemon can be chosen"
        assert asked - OF_PROMETHEUS <= labels[selector.name]
    grouped = {
        label
        for part in every
        if isinstance(part, promql_parser.AggregateExpr) and part.modifier
        for label in part.modifier.labels
    }
    known = set[str]().union(*(labels[name] for name in names))
    assert grouped <= known
    assert set(re.findall(r"{{(\w+)}}", legend)) <= grouped, "the legend names what is grouped by"


def test_every_figure_of_the_page_is_in_a_panel(labels: dict[str, set[str]]) -> None:
    shown = {name for query in QUERIES for name in NAMES.findall(str(query.values[0]))}
    assert labels.keys() - shown == set()


def test_panels_have_places_titles_and_a_word_each() -> None:
    places = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & places, f"{panel['title']} lies on another"
        assert max(x for x, _ in cells) < 24
        places |= cells
        assert panel["title"] and panel["description"]
        assert panel["datasource"]["uid"] == "${datasource}"
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers))
