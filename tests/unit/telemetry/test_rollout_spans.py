"""Spans of rollouts, as the SDK of OpenTelemetry collects them in memory."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from houston_daemon.recorder.journal_writer import EventKey
from houston_daemon.service.review_processes import SPANS_CHILD_MODULE
from houston_daemon.telemetry.rollout_spans import MAX_ATTRIBUTE_CHARACTERS
from houston_daemon.telemetry.span_export_child import (
    MISSING_PACKAGE,
    OtlpSender,
    SpanFollower,
    SpanPosition,
    position_file,
    traces_address,
)
from houston_shared import secret_redaction
from houston_shared.config import Configuration, LoadedConfiguration, load_configuration
from houston_shared.config_sections import TelemetrySettings
from houston_shared.errors import ConfigurationError
from houston_shared.home import Home
from houston_shared.records import CallIntent
from tests.console.home_builder import HomeBuilder

ROLLOUT = "words-1111"
ADDRESS = "http://collector.test"


@pytest.fixture
def builder(tmp_path: Path) -> Iterator[HomeBuilder]:
    with HomeBuilder(tmp_path / "home") as made:
        yield made


class Following:
    """A follower of a home, and what its collector has got."""

    def __init__(self, home: Home, content: bool = False, exporter: SpanExporter | None = None):
        settings = TelemetrySettings(otlp=ADDRESS, content=content)
        loaded = LoadedConfiguration(Configuration(telemetry=settings), home, "defaults")
        self.collector = InMemorySpanExporter()
        sender = OtlpSender(ADDRESS, "1.0", exporter or self.collector)
        self.follower = SpanFollower(loaded, sender)

    def spans(self) -> list[ReadableSpan]:
        """What came since the last time."""
        assert self.follower.round() == ""
        finished = list(self.collector.get_finished_spans())
        self.collector.clear()
        return finished


def whole_rollout(builder: HomeBuilder) -> None:
    """Two steps, the second guided and scored, and an end."""
    (call,) = builder.begin(
        ROLLOUT, 1, "look", (("run_command", {"command": "ls"}),), completion_tokens=12
    )
    key = EventKey(ROLLOUT, 1, part="intent.0")
    builder.event(key, "intent", CallIntent(call=call))
    builder.answer(ROLLOUT, 1, call, "no such file", success=False)
    builder.close_step(ROLLOUT, 1, attention=("error",))
    builder.say(ROLLOUT, "g1", "look again")
    builder.scored(ROLLOUT, 2, "submit", 62.5)
    builder.state(ROLLOUT, "finished", "worker", "submitted")


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


def named(spans: Sequence[ReadableSpan], name: str) -> ReadableSpan:
    (found,) = (span for span in spans if span.name == name)
    return found


def inside(spans: Sequence[ReadableSpan], outer: ReadableSpan) -> list[ReadableSpan]:
    """Spans whose parent is `outer`."""
    return [span for span in spans if span.parent and span.parent.span_id == outer.context.span_id]


def test_a_rollout_is_a_trace_of_steps_samples_and_calls(builder: HomeBuilder) -> None:
    following = Following(builder.home)
    assert following.spans() == [], "an empty home"
    builder.start(ROLLOUT)
    whole_rollout(builder)
    spans = following.spans()
    root = named(spans, "invoke_agent count-words")
    assert root.parent is None
    assert {span.context.trace_id for span in spans} == {root.context.trace_id}
    assert [step.name for step in inside(spans, root)] == ["step 1", "step 2"]
    first, second = inside(spans, root)
    assert [span.name for span in inside(spans, first)] == [
        "chat policy@1",
        "execute_tool run_command",
    ]
    assert [span.name for span in inside(spans, second)] == ["chat policy@1", "execute_tool submit"]
    assert len({span.context.span_id for span in spans}) == len(spans) == 7
    for step in (first, second):
        for part in inside(spans, step):
            assert step.start_time <= part.start_time <= part.end_time <= step.end_time
    assert root.end_time >= second.end_time
    assert root.resource.attributes["service.name"] == "houston"


def test_attributes_are_those_of_the_conventions_and_nothing_of_what_was_said(
    builder: HomeBuilder,
) -> None:
    following = Following(builder.home)
    following.spans()
    builder.start(ROLLOUT)
    whole_rollout(builder)
    spans = following.spans()
    root = named(spans, "invoke_agent count-words")
    assert attributes(root) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": "count-words",
        "gen_ai.conversation.id": ROLLOUT,
        "gen_ai.provider.name": "embedded",
        "gen_ai.request.model": "policy@1",
        "houston.state": "finished",
        "houston.reason": "submitted",
        "houston.steps": 2,
        "houston.steps.errors": 1,
        "houston.active_seconds": 60.0,
        "houston.score.best": 62.5,
        "houston.score.last": 62.5,
    }
    first, second = inside(spans, root)
    chat, call = inside(spans, first)
    assert chat.kind is SpanKind.CLIENT
    assert attributes(chat) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": ROLLOUT,
        "gen_ai.provider.name": "embedded",
        "gen_ai.request.model": "policy@1",
        "gen_ai.request.temperature": 0.7,
        "gen_ai.response.finish_reasons": ("stop",),
        "gen_ai.usage.input_tokens": 930,
        "gen_ai.usage.cache_read.input_tokens": 830,
        "gen_ai.usage.output_tokens": 12,
        "houston.role": "policy",
        "houston.drift": "forked",
    }
    assert attributes(call) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.conversation.id": ROLLOUT,
        "gen_ai.tool.name": "run_command",
        "gen_ai.tool.call.id": "1.0",
        "gen_ai.tool.type": "function",
        "error.type": "command",
        "houston.observation": "command",
    }
    assert call.status.status_code is StatusCode.ERROR
    assert named(spans, "execute_tool submit").status.status_code is StatusCode.UNSET
    assert attributes(second)["houston.guidance.heard"] == 1
    (heard, scored) = second.events
    assert (heard.name, scored.name) == ("houston.guidance", "gen_ai.evaluation.result")
    assert dict(scored.attributes or {})["gen_ai.evaluation.score.value"] == 62.5
    said = json.dumps([json.loads(span.to_json()) for span in spans])
    assert not [word for word in ("look again", "no such file", "ten most", "ls") if word in said]


def test_what_was_said_is_in_spans_where_that_is_asked_for(
    builder: HomeBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CORPUS_TOKEN", "corpus-7f3a-secret")
    secret_redaction.process_redactor.cache_clear()
    following = Following(builder.home, content=True)
    following.spans()
    builder.start(ROLLOUT)
    long = "x" * 50_000
    calls = (("run_command", {"command": "cat corpus-7f3a-secret"}),)
    builder.whole(ROLLOUT, 1, "I look at it.", calls, (f"begins {long}",))
    builder.state(ROLLOUT, "failed", "worker", "no more")
    spans = following.spans()
    secret_redaction.process_redactor.cache_clear()
    root = named(spans, "invoke_agent count-words")
    assert root.status.status_code is StatusCode.ERROR
    (task,) = json.loads(str(attributes(root)["gen_ai.input.messages"]))
    assert task["parts"][0]["content"].startswith("Write the ten most frequent words")
    (answer,) = json.loads(str(attributes(named(spans, "chat policy@1"))["gen_ai.output.messages"]))
    assert answer["parts"][0] == {"type": "text", "content": "I look at it."}
    assert answer["parts"][1]["arguments"] == {"command": "cat [secret:CORPUS_TOKEN]"}
    call = attributes(named(spans, "execute_tool run_command"))
    assert call["gen_ai.tool.call.arguments"] == '{"command":"cat [secret:CORPUS_TOKEN]"}'
    result = str(call["gen_ai.tool.call.result"])
    assert result.startswith("begins xxx")
    assert result.endswith("… (50,007 characters in all)")
    assert len(result) < MAX_ATTRIBUTE_CHARACTERS + 100


def test_a_collector_that_was_away_gets_the_same_spans_once_it_is_back(
    builder: HomeBuilder,
) -> None:
    """Also where it had taken them and the note of it was lost: the ids are the same."""
    away = Following(builder.home, exporter=Refusing())
    away.follower.round()
    builder.start(ROLLOUT)
    builder.whole(ROLLOUT, 1)
    before = position_file(builder.home).read_bytes()
    assert away.follower.round() == f"{ADDRESS} does not take spans: no reason was given"
    assert position_file(builder.home).read_bytes() == before
    back = Following(builder.home)
    spans = back.spans()
    assert [span.name for span in spans] == [
        "step 1",
        "chat policy@1",
        "execute_tool run_command",
    ]
    assert back.spans() == []
    position_file(builder.home).write_bytes(before)
    again = Following(builder.home).spans()
    assert [span.context for span in again] == [span.context for span in spans]
    assert [span.start_time for span in again] == [span.start_time for span in spans]


class Refusing(SpanExporter):
    """Takes nothing."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.FAILURE


def test_steps_of_before_it_was_switched_on_are_not_sent(builder: HomeBuilder) -> None:
    builder.start(ROLLOUT)
    builder.whole(ROLLOUT, 1)
    following = Following(builder.home)
    assert following.spans() == []
    builder.whole(ROLLOUT, 2)
    assert following.spans()[0].name == "step 2"
    kept = msgspec.json.decode(position_file(builder.home).read_bytes(), type=SpanPosition)
    assert kept.seq == builder.seq


def test_a_damaged_step_is_named_and_the_others_are_sent(builder: HomeBuilder) -> None:
    following = Following(builder.home)
    following.spans()
    builder.start(ROLLOUT)
    builder.whole(ROLLOUT, 1)
    builder.connection.execute("UPDATE events SET body = x'c1' WHERE part = 'sample'")
    builder.whole(ROLLOUT, 2)
    assert [span.name for span in following.spans()] == [
        "step 2",
        "chat policy@1",
        "execute_tool run_command",
    ]
    (reason,) = following.follower.unreadable.values()
    assert "cannot be read" in reason and "houston verify" in reason


def test_an_erased_step_has_times_and_no_words(builder: HomeBuilder) -> None:
    following = Following(builder.home, content=True)
    following.spans()
    builder.start(ROLLOUT)
    builder.whole(ROLLOUT, 1)
    for seq in range(1, builder.seq):
        kind = builder.connection.execute("SELECT kind FROM events WHERE seq = ?", (seq,))
        if kind.fetchone()[0] in ("sample", "result"):
            builder.erase(seq)
    assert [span.name for span in following.spans()] == ["step 1"]


ADDRESSES = [
    pytest.param("http://a:4318", "http://a:4318/v1/traces", id="a collector"),
    pytest.param("http://a:4318/", "http://a:4318/v1/traces", id="with a slash"),
    pytest.param("https://b/api/public/otel/v1/traces", None, id="with a path of its own"),
]


@pytest.mark.parametrize(("address", "traces"), ADDRESSES)
def test_where_spans_are_sent_to(address: str, traces: str | None) -> None:
    assert traces_address(address) == (traces or address)


def test_an_address_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "houston.toml"
    file.write_text('[telemetry]\notlp = "localhost:4317"\n')
    with pytest.raises(ConfigurationError, match=r"telemetry\.otlp"):
        load_configuration(str(tmp_path / "home"), str(file), {})


def test_without_the_extra_it_says_what_helps(tmp_path: Path) -> None:
    """The process, with a package in the place of OpenTelemetry that cannot be imported."""
    HomeBuilder(tmp_path / "home").close()
    absent = tmp_path / "absent" / "opentelemetry"
    absent.mkdir(parents=True)
    (absent / "__init__.py").write_text("raise ImportError('not installed')\n")
    child = subprocess.Popen(
        [sys.executable, "-m", SPANS_CHILD_MODULE, str(os.getpid()), str(tmp_path / "home"), ""],
        env={
            **os.environ,
            "PYTHONPATH": str(absent.parent),
            "HOUSTON__TELEMETRY__OTLP": ADDRESS,
        },
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout is not None
        told = json.loads(child.stdout.readline())
    finally:
        child.kill()
        child.communicate()
    assert told == {"failed": {"": MISSING_PACKAGE}}
    assert "pip install 'houston-agents[otel]'" in MISSING_PACKAGE
