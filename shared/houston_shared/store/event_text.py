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
    teller = _DESCRIBERS.get(kind)
    return teller(fields) if teller else ""


def describe_call(one: EventFields) -> str:
    """A call and its arguments."""
    arguments = one.get("arguments", {})
    return " ".join([str(one.get("name", "")), *(f"{k}={v}" for k, v in arguments.items())])


def format_step_range(first: int, last: int) -> str:
    """`step 3`, or `steps 3 to 5`."""
    return f"step {first}" if first == last else f"steps {first} to {last}"


def format_step_count(count: int) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} step{'s' * (count != 1)}"


def _describe_sample(fields: EventFields) -> str:
    calls = [describe_call(one) for one in fields.get("calls", ())]
    role = fields.get("role", "policy")
    lead = "" if role == "policy" else f"[{role}] "
    return lead + " → ".join([str(fields.get("thought", "")).strip(), *calls])


def _describe_result(fields: EventFields) -> str:
    name = fields.get("call", {}).get("name", "")
    failed = "" if fields.get("success", True) else " failed"
    return f"{name}{failed}: {str(fields.get('text', '')).strip()}"


def _describe_observation(fields: EventFields) -> str:
    files = [f"{one['path']} +{one['added']} −{one['removed']}" for one in fields.get("files", ())]
    attention = fields.get("attention", ())
    parts = ["closed", *files]
    if attention:
        parts.append(f"attention: {', '.join(attention)}")
    return "; ".join(parts)


def _describe_fork(fields: EventFields) -> str:
    how = "made mechanically" if fields.get("mechanical") else "summary"
    return f"new context, {fields.get('k')} steps compressed; {how}: {fields.get('summary', '')}"


def _describe_state(fields: EventFields) -> str:
    reason = f" ({fields['reason']})" if fields.get("reason") else ""
    return f"{fields.get('state')} by {fields.get('by')}{reason}"


def _describe_spec(fields: EventFields) -> str:
    return f"queued: task {fields.get('task', {}).get('name')} on {fields.get('engine')}"


def _describe_daemon(fields: EventFields) -> str:
    said = f"started, epoch {fields.get('epoch')}, {fields.get('version')}"
    if fields.get("configuration"):
        said += f", configuration {fields['configuration']}"
    if died := fields.get("died"):
        said += f"; the one before (pid {died['pid']}, since {died['since']}) had died"
        if died.get("last_stored"):
            said += f", its newest event is of {iso_time(died['last_stored'])}"
    return said


def _describe_bookmark(fields: EventFields) -> str:
    return "mark removed" if fields.get("remove") else f"marked: {fields.get('note', '')}"


def _keeps_engine(fields: EventFields) -> bool:
    return bool(fields.get("keep_engine"))


def _describe_refusal(fields: EventFields) -> str:
    needs = f" needs the role {fields['needs']}" if fields.get("needs") else ""
    times = int(fields.get("times", 1))
    return f"{fields.get('what', '')}{needs}{f' ({times} times)' if times > 1 else ''}"


def _describe_verdict(fields: EventFields, first: int) -> str:
    reason = f": {fields['reason']}" if fields.get("reason") else ""
    by = f" by {fields['by']}" if fields.get("asked") else ""
    return (
        f"{fields.get('verdict')}"
        f" {format_step_range(first, int(fields.get('last', first)))}{by}{reason}"
    )


def _describe_claim(fields: EventFields) -> str:
    note = f": {fields['note']}" if fields.get("note") else ""
    return f"{'released' if fields.get('release') else 'claimed'}{note}"


def _describe_policy(fields: EventFields) -> str:
    what = f"{fields.get('name')} is there"
    if fields.get("kind") == "base":
        return f"{what}: the base model {fields.get('base')}"
    run = f" by {fields['run']}" if fields.get("run") else ""
    return f"{what}, from {fields.get('parent')}{run}"


def _describe_training(fields: EventFields) -> str:
    alone = " beside the daemon" if fields.get("alone") else ""
    return f"training {fields.get('run')} ({fields.get('kind')}) is queued{alone}"


def _describe_training_state(fields: EventFields) -> str:
    reason = f": {fields['reason']}" if fields.get("reason") else ""
    again = " (a process began)" if fields.get("start") else ""
    return f"training {fields.get('run')} is {fields.get('state')}{again}{reason}"


def _describe_activation(fields: EventFields) -> str:
    back = "going back: " if fields.get("rollback") else ""
    policy = fields.get("policy") or "its own model"
    return f"{back}new rollouts of {fields.get('engine')} are to sample with {policy}"


def _describe_activation_end(fields: EventFields) -> str:
    what = f"activation {fields.get('asked')}"
    if not fields.get("ok"):
        return f"{what} failed: {fields.get('reason')}"
    gone = fields.get("unloaded") or ()
    return f"{what} is in force" + (f"; unloaded: {', '.join(gone)}" if gone else "")


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
    "claim": _describe_claim,
    "daemon": _describe_daemon,
    "stop": lambda fields: "asked the daemon to stop" + ", engines go on" * _keeps_engine(fields),
    "refused": _describe_refusal,
    "erased": lambda fields: (
        f"erased {len(fields.get('seqs', ()))} bodies"
        + (f": {fields['reason']}" if fields.get("reason") else "")
    ),
    "cleaned": lambda fields: (
        f"freed {fields.get('bytes', 0):,} bytes on the host"
        + (", snapshots too" if fields.get("snapshots") else "")
        + (f"; left: {fields['left']}" if fields.get("left") else "")
    ),
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
