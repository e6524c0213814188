"""What an event of the journal says, in a few words: for `tail`, the audit, and what is new.

It knows the fields of bodies (`store.bodies`) as plain fields, so that a kind of a later version
still shows. It does not know where they are shown.
"""

from collections.abc import Callable
from typing import Any

from houston_shared.clock import iso
from houston_shared.store import journal

Fields = dict[str, Any]


def said(kind: str, fields: Fields, step: int = 0) -> str:
    """What an event of a step says; may hold line breaks of its own text; empty for kinds without
    words.
    """
    if kind == "verdict":
        return _verdict(fields, step)
    if fields.get("erased"):
        return journal.ERASED
    teller = _TELLERS.get(kind)
    return teller(fields) if teller else ""


def call(one: Fields) -> str:
    """A call and its arguments."""
    arguments = one.get("arguments", {})
    return " ".join([str(one.get("name", "")), *(f"{k}={v}" for k, v in arguments.items())])


def steps(first: int, last: int) -> str:
    """`step 3`, or `steps 3 to 5`."""
    return f"step {first}" if first == last else f"steps {first} to {last}"


def many(count: int) -> str:
    """`1 step`, `2 steps`."""
    return f"{count} step{'s' * (count != 1)}"


def _sample(fields: Fields) -> str:
    calls = [call(one) for one in fields.get("calls", ())]
    role = fields.get("role", "policy")
    lead = "" if role == "policy" else f"[{role}] "
    return lead + " → ".join([str(fields.get("thought", "")).strip(), *calls])


def _result(fields: Fields) -> str:
    name = fields.get("call", {}).get("name", "")
    failed = "" if fields.get("success", True) else " failed"
    return f"{name}{failed}: {str(fields.get('text', '')).strip()}"


def _observation(fields: Fields) -> str:
    files = [f"{one['path']} +{one['added']} −{one['removed']}" for one in fields.get("files", ())]
    attention = fields.get("attention", ())
    parts = ["closed", *files]
    if attention:
        parts.append(f"attention: {', '.join(attention)}")
    return "; ".join(parts)


def _fork(fields: Fields) -> str:
    how = "made mechanically" if fields.get("mechanical") else "summary"
    return f"new context, {fields.get('k')} steps compressed; {how}: {fields.get('summary', '')}"


def _state(fields: Fields) -> str:
    reason = f" ({fields['reason']})" if fields.get("reason") else ""
    return f"{fields.get('state')} by {fields.get('by')}{reason}"


def _spec(fields: Fields) -> str:
    return f"queued: task {fields.get('task', {}).get('name')} on {fields.get('engine')}"


def _daemon(fields: Fields) -> str:
    said = f"started, epoch {fields.get('epoch')}, {fields.get('version')}"
    if fields.get("configuration"):
        said += f", configuration {fields['configuration']}"
    if died := fields.get("died"):
        said += f"; the one before (pid {died['pid']}, since {died['since']}) had died"
        if died.get("last_stored"):
            said += f", its newest event is of {iso(died['last_stored'])}"
    return said


def _bookmark(fields: Fields) -> str:
    return "mark removed" if fields.get("remove") else f"marked: {fields.get('note', '')}"


def _keeps(fields: Fields) -> bool:
    return bool(fields.get("keep_engine"))


def _refused(fields: Fields) -> str:
    needs = f" needs the role {fields['needs']}" if fields.get("needs") else ""
    times = int(fields.get("times", 1))
    return f"{fields.get('what', '')}{needs}{f' ({times} times)' if times > 1 else ''}"


def _verdict(fields: Fields, first: int) -> str:
    reason = f": {fields['reason']}" if fields.get("reason") else ""
    by = f" by {fields['by']}" if fields.get("asked") else ""
    return f"{fields.get('verdict')} {steps(first, int(fields.get('last', first)))}{by}{reason}"


def _claim(fields: Fields) -> str:
    note = f": {fields['note']}" if fields.get("note") else ""
    return f"{'released' if fields.get('release') else 'claimed'}{note}"


def _policy(fields: Fields) -> str:
    what = f"{fields.get('name')} is there"
    if fields.get("kind") == "base":
        return f"{what}: the base model {fields.get('base')}"
    run = f" by {fields['run']}" if fields.get("run") else ""
    return f"{what}, from {fields.get('parent')}{run}"


def _training(fields: Fields) -> str:
    alone = " beside the daemon" if fields.get("alone") else ""
    return f"training {fields.get('run')} ({fields.get('kind')}) is queued{alone}"


def _moved(fields: Fields) -> str:
    reason = f": {fields['reason']}" if fields.get("reason") else ""
    again = " (a process began)" if fields.get("start") else ""
    return f"training {fields.get('run')} is {fields.get('state')}{again}{reason}"


def _activation(fields: Fields) -> str:
    back = "going back: " if fields.get("rollback") else ""
    policy = fields.get("policy") or "its own model"
    return f"{back}new rollouts of {fields.get('engine')} are to sample with {policy}"


def _activated(fields: Fields) -> str:
    what = f"activation {fields.get('asked')}"
    if not fields.get("ok"):
        return f"{what} failed: {fields.get('reason')}"
    gone = fields.get("unloaded") or ()
    return f"{what} is in force" + (f"; unloaded: {', '.join(gone)}" if gone else "")


_TELLERS: dict[str, Callable[[Fields], str]] = {
    "sample": _sample,
    "result": _result,
    "observation": _observation,
    "fork": _fork,
    "state": _state,
    "spec": _spec,
    "bookmark": _bookmark,
    "delivery": lambda fields: f"heard {', '.join(fields.get('ids', ()))}",
    "cancel": lambda fields: f"cancel asked {fields.get('reason', '')}".strip(),
    "guidance": lambda fields: f"[{fields.get('mode')}] {fields.get('text', '')}",
    "edit": lambda fields: f"{fields.get('id')} is now: {fields.get('text', '')}",
    "withdraw": lambda fields: f"{fields.get('id')} taken back",
    "reorder": lambda fields: f"to be delivered in this order: {', '.join(fields.get('ids', ()))}",
    "claim": _claim,
    "daemon": _daemon,
    "stop": lambda fields: "asked the daemon to stop" + ", engines go on" * _keeps(fields),
    "refused": _refused,
    "erased": lambda fields: (
        f"erased {len(fields.get('seqs', ()))} bodies"
        + (f": {fields['reason']}" if fields.get("reason") else "")
    ),
    "cleaned": lambda fields: (
        f"freed {fields.get('bytes', 0):,} bytes on the host"
        + (", snapshots too" if fields.get("snapshots") else "")
        + (f"; left: {fields['left']}" if fields.get("left") else "")
    ),
    "policy": _policy,
    "training": _training,
    "training-moved": _moved,
    "training-cancel": lambda fields: f"training {fields.get('run')} is to end",
    "activation": _activation,
    "activated": _activated,
    "repaired": lambda fields: (
        f"repaired: {len(fields.get('seqs', ()))} events were set aside, or taken unchecked"
    ),
}
