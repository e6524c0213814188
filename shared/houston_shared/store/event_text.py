"""What an event of the journal says, in a few words: for `tail`, the audit, and what is new.

It knows the fields of bodies (`event_bodies`) as plain fields, so that a kind of a later version
still shows. It does not know where they are shown.
"""

from collections.abc import Callable
from typing import Any

from houston_shared.store import journal_events
from houston_shared.times_and_counts import iso_time

EventFields = dict[str, Any]


def describe_event(kind: str, fields: EventFields, step: int = 0) -> str:
    """What an event of a step says; may hold line breaks of its own text; empty for kinds without
    words.
    """
    if kind == "verdict":
        return _describe_verdict(fields, step)
    if fields.get("erased"):
        return journal_events.ERASED_TEXT
    describe = _DESCRIBERS.get(kind)
    return describe(fields) if describe else ""


def describe_call(call: EventFields) -> str:
    """A call and its arguments."""
    arguments = call.get("arguments", {})
    return " ".join([str(call.get("name", "")), *(f"{k}={v}" for k, v in arguments.items())])


def format_step_range(first: int, last: int) -> str:
    """`step 3`, or `steps 3 to 5`."""
    return f"step {first}" if first == last else f"steps {first} to {last}"


def _after(lead: str, value: object) -> str:
    """A value behind its lead; nothing where there is no value."""
    return f"{lead}{value}" if value else ""


def _describe_sample(fields: EventFields) -> str:
    calls = [describe_call(call) for call in fields.get("calls", ())]
    role = fields.get("role", "policy")
    lead = "" if role == "policy" else f"[{role}] "
    return lead + " → ".join([str(fields.get("thought", "")).strip(), *calls])


def _describe_result(fields: EventFields) -> str:
    name = fields.get("call", {}).get("name", "")
    failed = "" if fields.get("success", True) else " failed"
    return f"{name}{failed}: {str(fields.get('text', '')).strip()}"


def _describe_observation(fields: EventFields) -> str:
    files = [f"{f['path']} +{f['added']} −{f['removed']}" for f in fields.get("files", ())]
    attention = fields.get("attention", ())
    parts = ["closed", *files]
    if attention:
        parts.append(f"attention: {', '.join(attention)}")
    return "; ".join(parts)


def _describe_fork(fields: EventFields) -> str:
    summary_kind = "made mechanically" if fields.get("mechanical") else "summary"
    summary = f"{summary_kind}: {fields.get('summary', '')}"
    return f"new context, {fields.get('k')} steps compressed; {summary}"


def _describe_state(fields: EventFields) -> str:
    reason = f" ({fields['reason']})" if fields.get("reason") else ""
    return f"{fields.get('state')} by {fields.get('by')}{reason}"


def _describe_spec(fields: EventFields) -> str:
    return f"queued: task {fields.get('task', {}).get('name')} on {fields.get('engine')}"


def _describe_daemon(fields: EventFields) -> str:
    text = f"started, epoch {fields.get('epoch')}, {fields.get('version')}"
    text += _after(", configuration ", fields.get("configuration"))
    if died := fields.get("died"):
        text += f"; the one before (pid {died['pid']}, since {died['since']}) had died"
        if died.get("last_stored"):
            text += f", its newest event is of {iso_time(died['last_stored'])}"
    return text


def _describe_bookmark(fields: EventFields) -> str:
    return "mark removed" if fields.get("remove") else f"marked: {fields.get('note', '')}"


def _describe_hosts(fields: EventFields) -> str:
    deeds = {"added": "added", "removed": "removed", "replaced": "given new keys"}
    parts = [(", ".join(fields.get(name, ())), words) for name, words in deeds.items()]
    return "; ".join(f"host {hosts} {words}" for hosts, words in parts if hosts)


def _describe_refusal(fields: EventFields) -> str:
    needs = _after(" needs the role ", fields.get("needs"))
    times = int(fields.get("times", 1))
    return f"{fields.get('what', '')}{needs}{f' ({times} times)' if times > 1 else ''}"


def _describe_verdict(fields: EventFields, first: int) -> str:
    by = f" by {fields['by']}" if fields.get("asked") else ""
    steps = format_step_range(first, int(fields.get("last", first)))
    return f"{fields.get('verdict')} {steps}{by}{_after(': ', fields.get('reason'))}"


def _describe_job(fields: EventFields) -> str:
    job_text = f"job {' '.join(str(fields.get('command', '')).split())}"
    if not fields.get("ended_at"):
        return f"{job_text} runs on in session {fields.get('session')}"
    code = fields.get("exit_code")
    how = "" if code is None else f" with exit code {code}"
    by = " by the agent" if fields.get("stopped_by") else ""
    end = _after(", ", fields.get("end")) + _after(": ", fields.get("last_line"))
    return f"{job_text} has ended{how}{by}{end}"


def _describe_claim(fields: EventFields) -> str:
    note = fields.get("note")
    deed = "claimed"
    if fields.get("release"):
        deed = f"handed over to {fields.get('to') or 'anybody'}" if note else "released"
    return deed + _after(": ", note)


def _describe_policy(fields: EventFields) -> str:
    policy_text = f"{fields.get('name')} is there"
    if fields.get("kind") == "base":
        return f"{policy_text}: the base model {fields.get('base')}"
    return f"{policy_text}, from {fields.get('parent')}{_after(' by ', fields.get('run'))}"


def _describe_training(fields: EventFields) -> str:
    alone = " beside the daemon" if fields.get("alone") else ""
    return f"training {fields.get('run')} ({fields.get('kind')}) is queued{alone}"


def _describe_training_state(fields: EventFields) -> str:
    again = " (a process began)" if fields.get("start") else ""
    reason = _after(": ", fields.get("reason"))
    return f"training {fields.get('run')} is {fields.get('state')}{again}{reason}"


def _describe_activation(fields: EventFields) -> str:
    back = "going back: " if fields.get("rollback") else ""
    policy = fields.get("policy") or "its own model"
    return f"{back}new rollouts of {fields.get('engine')} are to sample with {policy}"


def _describe_activation_end(fields: EventFields) -> str:
    activation_text = f"activation {fields.get('asked')}"
    if not fields.get("ok"):
        return f"{activation_text} failed: {fields.get('reason')}"
    return f"{activation_text} is in force" + _after(
        "; unloaded: ", ", ".join(fields.get("unloaded") or ())
    )


_DESCRIBERS: dict[str, Callable[[EventFields], str]] = {
    "sample": _describe_sample,
    "result": _describe_result,
    "observation": _describe_observation,
    "fork": _describe_fork,
    "state": _describe_state,
    "spec": _describe_spec,
    "bookmark": _describe_bookmark,
    "delivery": lambda fields: f"heard {', '.join(fields.get('ids', ()))}",
    "cancel": lambda fields: f"cancel asked {fields.get('reason', '')}".strip(),
    "guidance": lambda fields: f"[{fields.get('mode')}] {fields.get('text', '')}",
    "edit": lambda fields: f"{fields.get('id')} is now: {fields.get('text', '')}",
    "withdraw": lambda fields: f"{fields.get('id')} taken back",
    "reorder": lambda fields: f"to be delivered in this order: {', '.join(fields.get('ids', ()))}",
    "process-reward": lambda fields: f"{fields.get('policy')}: {fields.get('score', 0.0):.2f}",
    "draft": lambda fields: f"{fields.get('critic')} would say: {fields.get('text', '')}",
    "draft-decision": lambda fields: f"draft {fields.get('id')} was {fields.get('decision')}",
    "review-cost": lambda fields: (
        f"{fields.get('reviewer')} took {fields.get('requests')} samples"
        + (f", cost {fields['cost']:.4f}" if fields.get("cost") is not None else "")
    ),
    "claim": _describe_claim,
    "job": _describe_job,
    "note-read": lambda fields: "read the note",
    "daemon": _describe_daemon,
    "stop": lambda fields: (
        "asked the daemon to stop" + (", engines go on" if fields.get("keep_engine") else "")
    ),
    "refused": _describe_refusal,
    "erased": lambda fields: (
        f"erased {len(fields.get('seqs', ()))} bodies" + _after(": ", fields.get("reason"))
    ),
    "cleaned": lambda fields: (
        f"freed {fields.get('bytes', 0):,} bytes on the host"
        + (", snapshots too" if fields.get("snapshots") else "")
        + _after("; left: ", fields.get("left"))
    ),
    "hosts": _describe_hosts,
    "policy": _describe_policy,
    "training": _describe_training,
    "training-moved": _describe_training_state,
    "training-cancel": lambda fields: f"training {fields.get('run')} is to end",
    "activation": _describe_activation,
    "activated": _describe_activation_end,
    "repaired": lambda fields: (
        f"repaired: {len(fields.get('seqs', ()))} events were set aside, or taken unchecked"
    ),
}
