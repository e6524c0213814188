"""A daemon that sends spans over OTLP/HTTP: to a collector of ours that decodes what comes, that is
away for a while, and that never hears anything twice under another id."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.station import Station


class Collector:
    """Takes spans at `/v1/traces`, or refuses them."""

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.refuses = False
        self.refused = 0
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.refused += collector.refuses
                known = self.path == "/v1/traces" and not collector.refuses
                if known:
                    request = ExportTraceServiceRequest.FromString(body)
                    for resource in request.resource_spans:
                        for scope in resource.scope_spans:
                            collector.spans += scope.spans
                self.send_response(200 if known else 400)
                answer = ExportTraceServiceResponse().SerializeToString()
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def names(self) -> list[str]:
        return [span.name for span in self.spans]


@pytest.fixture
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


def follow(station: Station, collector: Collector, **more: str) -> None:
    station.home.mkdir(parents=True, exist_ok=True)
    lines = "".join(f"{key} = {value}\n" for key, value in more.items())
    text = f'[telemetry]\notlp = "{collector.address}"\n{lines}'
    (station.home / "houston.toml").write_text(text)


def test_a_rollout_is_a_trace_at_a_collector_that_was_away(
    station: Station, collector: Collector
) -> None:
    follow(station, collector, content="true")
    collector.refuses = True
    station.start()
    kept = station.home / "telemetry.json"
    station.until(kept.is_file, 60, "it follows")
    call = {"name": "run_command", "arguments": {"command": "echo told"}}
    script = station.script([{"thought": "I act.", "calls": [call]}, {"thought": "Enough."}])
    (rollout,) = station.rollout(station.task(budget="steps = 2"), script)
    station.ended(rollout)
    station.until(lambda: collector.refused, 60, "it is told")
    trouble = station.until(
        lambda: station.json("daemon", "status")[0]["troubles"].get("telemetry"), 60, "it is said"
    )
    assert f"{collector.address} does not take spans: " in trouble and "400" in trouble

    collector.refuses = False
    station.until(lambda: "invoke_agent probe" in collector.names(), 60, "all of it comes")
    station.until(
        lambda: "telemetry" not in station.json("daemon", "status")[0]["troubles"], 60, "all well"
    )
    (root,) = (span for span in collector.spans if span.name == "invoke_agent probe")
    steps = [span for span in collector.spans if span.parent_span_id == root.span_id]
    assert [step.name for step in steps] == ["step 1", "step 2"]
    (tool,) = (span for span in collector.spans if span.name == "execute_tool run_command")
    assert tool.parent_span_id == steps[0].span_id
    told = {attribute.key: attribute.value.string_value for attribute in tool.attributes}
    assert told["gen_ai.conversation.id"] == rollout
    assert "told" in told["gen_ai.tool.call.result"]
    chats = [span for span in collector.spans if span.name.startswith("chat ")]
    assert len(chats) == 2
    assert all(span.kind == Span.SPAN_KIND_CLIENT for span in chats)
    assert {span.trace_id for span in collector.spans} == {root.trace_id}
    ids = [span.span_id for span in collector.spans]
    assert len(ids) == len(set(ids)), "what was refused came once"


@pytest.mark.slow
def test_after_a_kill_it_goes_on_where_it_was(station: Station, collector: Collector) -> None:
    follow(station, collector)
    station.start()
    station.until((station.home / "telemetry.json").is_file, 60, "it follows")
    task, script = station.task(budget="steps = 1"), station.script([{"thought": "Enough."}])
    for count in (1, 2):
        (rollout,) = station.rollout(task, script)
        station.ended(rollout)
        station.until(
            lambda count=count: collector.names().count("invoke_agent probe") == count,
            60,
            "it came",
        )
        station.kill_daemon()
        station.start()
    assert collector.names().count("step 1") == 2
