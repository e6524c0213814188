"""How one message is handled: which handler does it, and what is answered after the commit.

`HANDLERS` maps each control message to its handler: add a new one there and in `REQUIRED_ROLES`.
`WorkerMessage` and `WorkerHeartbeats` go to the ingest handlers; `SupervisorCall` is a function
with a future. `group_commit` handles transactions.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from houston_daemon.recorder import rollout_reader
from houston_daemon.recorder.handlers import (
    branch_handlers,
    draft_handlers,
    erase_handlers,
    guidance_handlers,
    import_handlers,
    ingest_handlers,
    policy_handlers,
    process_reward_handlers,
    rollout_handlers,
    training_handlers,
    verdict_handlers,
)
from houston_daemon.recorder.identity_and_roles import Author, NotAllowed, Peer, resolve_author
from houston_daemon.recorder.journal_writer import EventBody
from houston_daemon.recorder.live_workers import WorkerRoute
from houston_daemon.recorder.recorder_sockets import ReceivedFrames, RouterSocket
from houston_daemon.recorder.recorder_store import Store
from houston_daemon.recorder.request_checks import Refusal
from houston_shared.control_messages import (
    ActivatePolicy,
    BranchRollout,
    CancelTraining,
    ClaimRollout,
    CleanRollouts,
    EraseBodies,
    GiveVerdicts,
    ImportRollout,
    ReadNote,
    RegisterPolicy,
    RejectDraft,
    ReorderGuidance,
    ReportTrainingState,
    StartRollouts,
    StartTraining,
    Status,
    StoreDraft,
    StoreProcessRewards,
    StoreReviewCost,
    StoreVerdicts,
)
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.wire import (
    Ack,
    AskStatus,
    BookmarkStep,
    ControlRequest,
    Denied,
    EditGuidance,
    FromPerson,
    Guide,
    HeartbeatReplies,
    Heartbeats,
    IngestRequest,
    Refused,
    ReportPresence,
    RequestStored,
    Steer,
    StopDaemon,
    WithdrawGuidance,
    WorkerControl,
)

DISK_FULL_REASON = "The disk is full: nothing is stored until there is room."

HANDLERS: dict[type[FromPerson], Callable[[Store, Any, Author], RequestStored]] = {
    Guide: guidance_handlers.queue_guidance,
    EditGuidance: guidance_handlers.edit_guidance,
    WithdrawGuidance: guidance_handlers.withdraw_guidance,
    BookmarkStep: guidance_handlers.set_bookmark,
    GiveVerdicts: verdict_handlers.store_human_verdicts,
    StoreVerdicts: verdict_handlers.store_automatic_verdicts,
    StoreProcessRewards: process_reward_handlers.store_process_rewards,
    StoreDraft: draft_handlers.store_draft,
    RejectDraft: draft_handlers.reject_draft,
    StoreReviewCost: draft_handlers.store_review_cost,
    ReorderGuidance: guidance_handlers.reorder_guidance,
    ClaimRollout: guidance_handlers.claim_rollout,
    ReadNote: guidance_handlers.mark_note_read,
    ReportPresence: guidance_handlers.record_presence,
    Steer: rollout_handlers.steer_rollout,
    StartRollouts: rollout_handlers.start_rollouts,
    ImportRollout: import_handlers.import_rollout,
    BranchRollout: branch_handlers.branch_rollout,
    EraseBodies: erase_handlers.erase_bodies,
    CleanRollouts: rollout_handlers.clean_rollouts,
    StartTraining: training_handlers.start_training_run,
    ReportTrainingState: training_handlers.update_standalone_run,
    CancelTraining: training_handlers.cancel_training_run,
    RegisterPolicy: policy_handlers.register_policy,
    ActivatePolicy: policy_handlers.activate_policy,
    StopDaemon: rollout_handlers.stop_daemon,
}
"""What is done for each message of a person; `AskStatus` is answered by the loop."""


class WorkItem(ABC):
    """One message. `do` runs inside a savepoint, `answer` after the commit."""

    @abstractmethod
    def do(self, store: Store) -> None:
        """Read and append; raises Refusal or HoustonError when it is not done."""

    @abstractmethod
    def refuse(self, problem: Refusal | HoustonError) -> None:
        """Take note of why it is not done."""

    @abstractmethod
    def answer(self, store: Store, controls: Callable[[str], WorkerControl]) -> None:
        """Say what came of it; called once, after the commit."""


class WorkerMessage(WorkItem):
    """A message on `ingest`."""

    def __init__(
        self, router: RouterSocket, frames: ReceivedFrames, message: IngestRequest
    ) -> None:
        self.message = message
        self.slot = ingest_handlers.find_event_slot(message)
        self.size = len(frames.body or b"")
        """Bytes of the whole message: no body in it is larger."""
        self.body: EventBody | None = None
        self.write_refusal: Refusal | None = None
        """Why a large body is not on disk."""
        self._router = router
        self._frames = frames
        self._reply: ingest_handlers.WorkerAnswer | Refused | None = None

    def do(self, store: Store) -> None:
        """Handle it."""
        if self.write_refusal:
            raise self.write_refusal
        routing = self._frames.routing
        route = WorkerRoute(self._router, routing, self._router.connection_of(routing))
        if store.workers.has_later_line(self.message.rollout, self.message.lease, route):
            return
        self._reply = ingest_handlers.handle_worker_message(
            store, self.message, self.slot, self.body, route
        )

    def refuse(self, problem: Refusal | HoustonError) -> None:
        """A worker hears a code and a reason."""
        self._reply = make_refused_reply(problem)

    def answer(self, store: Store, controls: Callable[[str], WorkerControl]) -> None:
        """An ack carries the control state as it is after the whole batch."""
        reply = self._reply
        if isinstance(reply, ingest_handlers.AckContent):
            ack = make_ack(store, self.message.rollout, reply, controls)
            self._router.send(self._frames.routing, self._frames.request, ack)
        elif reply is not None:  # nobody listens on a line that was left
            self._router.send(self._frames.routing, self._frames.request, reply)


class WorkerHeartbeats(WorkItem):
    """Heartbeats on `ingest`, of several rollouts of one worker."""

    def __init__(self, router: RouterSocket, frames: ReceivedFrames, message: Heartbeats) -> None:
        self._beats = message.beats
        self._router = router
        self._frames = frames
        self._answers: tuple[ingest_handlers.HeartbeatAnswer, ...] = ()
        self._refused: Refused | None = None
        self._is_left = False
        """Whether they came over a line that their worker has left: nobody listens there."""

    def do(self, store: Store) -> None:
        """Handle them all."""
        self._refused = None
        routing = self._frames.routing
        route = WorkerRoute(self._router, routing, self._router.connection_of(routing))
        self._is_left = any(
            store.workers.has_later_line(beat.rollout, beat.lease, route) for beat in self._beats
        )
        if not self._is_left:
            self._answers = ingest_handlers.handle_heartbeats(store, self._beats, route)

    def refuse(self, problem: Refusal | HoustonError) -> None:
        """Nothing of it could be stored."""
        self._refused = make_refused_reply(problem)

    def answer(self, store: Store, controls: Callable[[str], WorkerControl]) -> None:
        """Each as it would be answered alone."""
        reply: Refused | HeartbeatReplies | None = self._refused
        if reply is None and not self._is_left:
            replies = (
                answer
                if isinstance(answer, Refused)
                else make_ack(store, beat.rollout, answer, controls)
                for beat, answer in zip(self._beats, self._answers, strict=True)
            )
            reply = HeartbeatReplies(replies=tuple(replies))
        if reply is not None:
            self._router.send(self._frames.routing, self._frames.request, reply)


def make_ack(
    store: Store,
    rollout: str,
    content: ingest_handlers.AckContent,
    controls: Callable[[str], WorkerControl],
) -> Ack:
    """An ack with the current control state, which the worker knows from then on."""
    control = controls(rollout)
    worker = store.workers.get(rollout)
    if worker:
        worker.told_control = control
    act = content.intent is None or rollout_reader.is_call_allowed(content.intent, control)
    return Ack(
        seq=content.seq,
        control=control,
        act=act,
        guidance=content.guidance,
        duplicate=content.duplicate,
    )


def make_refused_reply(problem: Refusal | HoustonError) -> Refused:
    """A worker hears a code and a reason."""
    code = problem.code if isinstance(problem, Refusal) else "INVALID"
    return Refused(code=code, reason=str(problem))


class PersonMessage(WorkItem):
    """A message on `control`."""

    def __init__(
        self,
        router: RouterSocket,
        frames: ReceivedFrames,
        message: ControlRequest,
        peer: Peer,
        status: Callable[[Store], Status],
        note_refused: Callable[[Peer, ControlRequest, NotAllowed], None],
    ) -> None:
        """note_refused: called when the message turns out to be another's to send."""
        self._router = router
        self._frames = frames
        self._message = message
        self._peer = peer
        self._status = status
        self._note_refused = note_refused
        self._reply: RequestStored | Denied | Status | None = None

    def do(self, store: Store) -> None:
        """Handle it under the name that the kernel vouches for."""
        if isinstance(self._message, AskStatus):
            self._reply = self._status(store)
        else:
            author = resolve_author(self._peer, self._message.claimed)
            self._reply = HANDLERS[type(self._message)](store, self._message, author)

    def refuse(self, problem: Refusal | HoustonError) -> None:
        """A person hears cause, effect and next command."""
        if isinstance(problem, NotAllowed):
            self._note_refused(self._peer, self._message, problem)
        if isinstance(problem, HoustonError):
            self._reply = make_denied_reply(problem)
        else:
            self._reply = Denied(
                cause=problem.reason, effect="Nothing was changed.", code=ExitCode.FAILED
            )

    def answer(self, store: Store, controls: Callable[[str], WorkerControl]) -> None:
        """Send it."""
        self._router.send(self._frames.routing, self._frames.request, self._reply)


def make_denied_reply(problem: HoustonError) -> Denied:
    """What a person hears of an error."""
    return Denied(
        cause=problem.cause, effect=problem.effect, next=problem.next, code=int(problem.code)
    )


class SupervisorCall(WorkItem):
    """A call of the handle, answered through a future."""

    def __init__(self, act: Callable[[Store], Any]) -> None:
        self.future: Future[Any] = Future()
        self._act = act
        self._value: Any = None
        self._problem: Exception | None = None

    def do(self, store: Store) -> None:
        """Call it."""
        self._value = self._act(store)

    def refuse(self, problem: Refusal | HoustonError) -> None:
        """The caller gets a HoustonError."""
        self._problem = (
            problem
            if isinstance(problem, HoustonError)
            else HoustonError(problem.reason, "Nothing was changed.")
        )

    def answer(self, store: Store, controls: Callable[[str], WorkerControl]) -> None:
        """Wake the caller."""
        if self._problem:
            self.future.set_exception(self._problem)
        else:
            self.future.set_result(self._value)
