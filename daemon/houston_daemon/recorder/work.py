"""One message on its way: who asked, what is done in the transaction, what is answered after it."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from houston_daemon.recorder import control_state
from houston_daemon.recorder.people import (
    branching,
    claiming,
    cleaning,
    erasing,
    judging,
    operate,
    ordering,
    policies,
    training,
)
from houston_daemon.recorder.people import say as people
from houston_daemon.recorder.people.identity import Peer, author
from houston_daemon.recorder.people.roles import NotAllowed
from houston_daemon.recorder.refusal import Refusal
from houston_daemon.recorder.sockets import Frames, Router
from houston_daemon.recorder.steps import ingest
from houston_daemon.recorder.steps.journal import Body
from houston_daemon.recorder.store import Store
from houston_shared.errors import ExitCode, HoustonError
from houston_shared.wire import (
    Ack,
    AskStatus,
    Bookmark,
    Control,
    ControlRequest,
    Denied,
    Done,
    EditGuidance,
    Guide,
    IngestRequest,
    Present,
    Refused,
    Steer,
    StopDaemon,
    Withdraw,
)
from houston_shared.wire_operators import Branch, CleanRollouts, EraseBodies, StartRollouts
from houston_shared.wire_people import Claim, GiveVerdicts, Reorder
from houston_shared.wire_status import Status
from houston_shared.wire_training import (
    ActivatePolicy,
    CancelTraining,
    RegisterPolicy,
    StartTraining,
    StoreVerdicts,
    TrainingMoved,
)

FULL = "The disk is full: nothing is stored until there is room."


class Work(ABC):
    """One message. `do` runs inside a savepoint, `answer` after the commit."""

    @abstractmethod
    def do(self, store: Store) -> None:
        """Read and append; raises Refusal or HoustonError when it is not done."""

    @abstractmethod
    def refuse(self, problem: Refusal | HoustonError) -> None:
        """Take note of why it is not done."""

    @abstractmethod
    def answer(self, store: Store, controls: Callable[[str], Control]) -> None:
        """Say what came of it; called once, after the commit."""


class FromWorker(Work):
    """A message on `ingest`."""

    def __init__(self, router: Router, frames: Frames, message: IngestRequest) -> None:
        self.message = message
        self.slot = ingest.slot(message)
        self.size = len(frames.body or b"")
        """Bytes of the whole message: no body in it is larger."""
        self.body: Body | None = None
        self.unwritten: Refusal | None = None
        """Why a large body is not on disk."""
        self._router = router
        self._frames = frames
        self._reply: ingest.Answer | Refused | None = None

    def do(self, store: Store) -> None:
        """Handle it."""
        if self.unwritten:
            raise self.unwritten
        self._reply = ingest.handle(store, self.message, self.slot, self.body, self._frames.routing)

    def refuse(self, problem: Refusal | HoustonError) -> None:
        """A worker hears a code and a reason."""
        code = problem.code if isinstance(problem, Refusal) else "INVALID"
        self._reply = Refused(code=code, reason=str(problem))

    def answer(self, store: Store, controls: Callable[[str], Control]) -> None:
        """An ack carries the control state as it is after the whole batch."""
        reply = self._reply
        if isinstance(reply, ingest.Stored):
            control = controls(self.message.rollout)
            worker = store.workers.of(self.message.rollout)
            if worker:
                worker.told = control
            act = reply.intent is None or control_state.may_act(reply.intent, control)
            ack = Ack(
                seq=reply.seq,
                control=control,
                act=act,
                guidance=reply.guidance,
                duplicate=reply.duplicate,
            )
            self._router.send(self._frames.routing, self._frames.request, ack)
        else:
            self._router.send(self._frames.routing, self._frames.request, reply)


class FromPerson(Work):
    """A message on `control`."""

    def __init__(
        self,
        router: Router,
        frames: Frames,
        message: ControlRequest,
        peer: Peer,
        status: Callable[[Store], Status],
        refused: Callable[[Peer, ControlRequest, NotAllowed], None],
    ) -> None:
        """refused: told when the message turns out to be another's to send."""
        self._router = router
        self._frames = frames
        self._message = message
        self._peer = peer
        self._status = status
        self._refused = refused
        self._reply: Done | Denied | Status | None = None

    def do(self, store: Store) -> None:
        """Handle it under the name that the kernel vouches for."""
        who = author(self._peer, self._message.claimed)
        match self._message:
            case Guide() as message:
                self._reply = people.guide(store, message, who)
            case EditGuidance() as message:
                self._reply = people.edit(store, message, who)
            case Withdraw() as message:
                self._reply = people.withdraw(store, message, who)
            case Bookmark() as message:
                self._reply = people.bookmark(store, message, who)
            case GiveVerdicts() as message:
                self._reply = judging.judge(store, message, who)
            case StoreVerdicts() as message:
                self._reply = judging.keep(store, message, who)
            case Reorder() as message:
                self._reply = ordering.reorder(store, message, who)
            case Claim() as message:
                self._reply = claiming.claim(store, message, who)
            case Present() as message:
                self._reply = people.present(store, message, who)
            case Steer() as message:
                self._reply = operate.steer(store, message, who)
            case StartRollouts() as message:
                self._reply = operate.start(store, message, who)
            case Branch() as message:
                self._reply = branching.branch(store, message, who)
            case EraseBodies() as message:
                self._reply = erasing.erase(store, message, who)
            case CleanRollouts() as message:
                self._reply = cleaning.clean(store, message, who)
            case StartTraining() as message:
                self._reply = training.start(store, message, who)
            case TrainingMoved() as message:
                self._reply = training.moved(store, message, who)
            case CancelTraining() as message:
                self._reply = training.cancel(store, message, who)
            case RegisterPolicy() as message:
                self._reply = policies.register(store, message, who)
            case ActivatePolicy() as message:
                self._reply = policies.activate(store, message, who)
            case StopDaemon() as message:
                self._reply = operate.stop(store, message, who)
            case AskStatus():
                self._reply = self._status(store)

    def refuse(self, problem: Refusal | HoustonError) -> None:
        """A person hears cause, effect and next command."""
        if isinstance(problem, NotAllowed):
            self._refused(self._peer, self._message, problem)
        if isinstance(problem, HoustonError):
            self._reply = denied(problem)
        else:
            self._reply = Denied(
                cause=problem.reason, effect="Nothing was changed.", code=ExitCode.FAILED
            )

    def answer(self, store: Store, controls: Callable[[str], Control]) -> None:
        """Send it."""
        self._router.send(self._frames.routing, self._frames.request, self._reply)


def denied(problem: HoustonError) -> Denied:
    """What a person hears of an error."""
    return Denied(
        cause=problem.cause, effect=problem.effect, next=problem.next, code=int(problem.code)
    )


class FromSupervisor(Work):
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

    def answer(self, store: Store, controls: Callable[[str], Control]) -> None:
        """Wake the caller."""
        if self._problem:
            self.future.set_exception(self._problem)
        else:
            self.future.set_result(self._value)
