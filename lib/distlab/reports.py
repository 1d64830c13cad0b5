"""Says what every rank was doing when a run failed."""

import linecache
import os
import re
import sys
from collections.abc import Container, Sequence
from types import FrameType, TracebackType

from distlab.errors import (
    CollectiveMismatchError,
    DeadlockError,
    NeverWaitedError,
    RankExitedError,
    RankTimeoutError,
)
from distlab.ledger import rank_ranges

_HERE = os.path.dirname(__file__) + os.sep


class Call:
    """One pending call of one rank. Only what is cheap is kept; text is made when it is needed."""

    __slots__ = ("detail", "file", "function", "group", "launched", "line", "number", "op", "peers",
                 "shape")  # fmt: skip

    def __init__(self, op, group, number, shape, detail, peers=""):
        self.op = op  # "all_reduce"
        self.group = group  # global ranks
        self.number = number  # the how manyth collective of this group, or None
        self.shape = shape  # (dtype, shape) or None
        self.detail = detail  # what else must agree: ("sum", "dim 0"), ("src 0",), ...
        self.peers = peers  # "to rank 1", for send and recv
        self.launched = None  # where a handle's call was made, once the handle is waited for
        self._stand(sys._getframe(2))

    def _stand(self, frame: FrameType) -> None:
        """Notes the place: the innermost line that is not distlab's own."""
        while frame.f_code.co_filename.startswith(_HERE) and frame.f_back is not None:
            frame = frame.f_back
        self.file: str = frame.f_code.co_filename
        self.function: str = frame.f_code.co_name
        self.line: int = frame.f_lineno

    def packed(self) -> tuple:
        """The call as plain values, to cross into another process."""
        shape = self.shape and (str(self.shape[0]), self.shape[1])
        return (self.op, self.group, self.number, shape, self.detail, self.peers, self.launched,
                self.file, self.function, self.line)  # fmt: skip

    @classmethod
    def unpacked(cls, values: tuple) -> "Call":
        """The call that another process packed."""
        call = cls.__new__(cls)
        (call.op, call.group, call.number, call.shape, call.detail, call.peers, call.launched,
         call.file, call.function, call.line) = values  # fmt: skip
        return call

    def waited_for(self) -> "Call":
        """The same call, as it stands where its handle is waited for."""
        call = Call.__new__(Call)
        for name in ("op", "group", "number", "shape", "detail", "peers"):
            setattr(call, name, getattr(self, name))
        call.launched = (self.file, self.function, self.line)
        call._stand(sys._getframe(2))
        return call

    def __str__(self) -> str:
        number = "" if self.number is None else f" #{self.number + 1}"
        inside = list(self.detail)
        if self.shape is not None:
            dtype, shape = self.shape
            inside.append(f"{str(dtype).removeprefix('torch.')}{list(shape)}")
        text = f"{self.op}{number}"
        if inside:
            text += f" ({', '.join(inside)})"
        return text + (f" {self.peers}" if self.peers else "")

    def where(self) -> str:
        """The place of the call: file or cell, line, function and source text."""
        here = place(self.file, self.function, self.line)
        return (
            here if self.launched is None else f"{here}\n      launched at {place(*self.launched)}"
        )


def place(name: str, function: str, line: int) -> str:
    """Names a line of code; a notebook's cell by its number."""
    try:
        shell = sys.modules["IPython"].get_ipython()
        _, label = shell.compile.format_code_name(name)  # ("Cell", "In[3]")
        file = f"cell {label}"
    except (KeyError, AttributeError, TypeError):
        file = name if name.startswith("<") else os.path.relpath(name)
        if file.startswith(".." + os.sep + ".."):
            file = name
    text = linecache.getline(name, line).strip()
    inside = "" if function == "<module>" else f" in {function}"
    return f"{file}, line {line}{inside}" + (f": {text}" if text else "")


def place_of(frame: FrameType, line: int | None = None) -> str:
    """Names the line that a frame executes."""
    code = frame.f_code
    return place(code.co_filename, code.co_name, frame.f_lineno if line is None else line)


def _states(
    pending: Sequence[Call | None], finished: Sequence[bool], skip: Container[int] = ()
) -> list[str]:
    """One line for all ranks that do the same at the same place."""
    lines: dict[tuple[str, str], list[int]] = {}
    for rank, (call, done) in enumerate(zip(pending, finished, strict=True)):
        if rank in skip:
            continue
        if done:
            state = ("returned", "")
        elif call is None:
            state = ("in its own code", "")
        else:
            group = call.group
            whole = len(group) == len(pending)
            members = "" if whole else f" of ranks {rank_ranges(group)}"
            state = (f"waits in {call}{members}", call.where())
        lines.setdefault(state, []).append(rank)
    result = []
    for (state, where), ranks in lines.items():
        who = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {rank_ranges(ranks)}"
        verb = state if len(ranks) == 1 else state.replace("waits in", "wait in", 1)
        if state == "returned":
            verb = "has returned" if len(ranks) == 1 else "have returned"
        elif not where:
            verb = "is in its own code" if len(ranks) == 1 else "are in their own code"
        result.append(f"  {who} {verb}" + (f"\n      at {where}" if where else ""))
    return result


def others(pending: Sequence[Call | None], finished: Sequence[bool], skip: Container[int]) -> str:
    """What the ranks were doing, but for those in `skip`."""
    lines = _states(pending, finished, skip=skip)
    return "\n".join(["Meanwhile:", *lines]) if lines else ""


def deadlock(pending: Sequence[Call | None], finished: Sequence[bool]) -> DeadlockError:
    """The error for ranks that wait for each other, or for one that has returned."""
    lines = [
        "deadlock: no rank can go on.",
        *_states(pending, finished),
        _advice(pending, finished),
    ]
    return DeadlockError("\n".join(line for line in lines if line))


def _advice(pending: Sequence[Call | None], finished: Sequence[bool]) -> str:
    waiting = [call for call in pending if call is not None]
    ops = {call.op for call in waiting}
    awaited = {rank for call in waiting for rank in call.group}
    gone = [rank for rank in sorted(awaited) if finished[rank]]
    if gone and not ops & {"send", "recv", "sendrecv"}:
        who = "rank" if len(gone) == 1 else "ranks"
        return (
            f"All ranks of a group must make the same collective calls; {who} {rank_ranges(gone)} "
            "returned without this one."
        )
    if ops == {"send"}:
        return (
            "A send waits until it is received. Let one side of each pair receive first, or use "
            "sendrecv, which does both at once."
        )
    if ops <= {"send", "recv", "sendrecv"}:
        return "Every send needs a recv on the other side, with the same ranks and tag."
    if len({(call.group, call.number) for call in waiting}) > 1:
        return "Ranks that share a group must call its collectives in the same order."
    return "Every rank of a group must make the same calls, in the same order."


def mismatch(calls: Sequence[Call], ranks: Sequence[int]) -> CollectiveMismatchError:
    """The error for ranks that met in one call but asked for different things."""
    first = calls[0]
    names = [
        name
        for name, differs in (
            ("operations", any(c.op != first.op for c in calls)),
            (
                "shapes",
                any(c.shape and first.shape and c.shape[1] != first.shape[1] for c in calls),
            ),
            (
                "dtypes",
                any(c.shape and first.shape and c.shape[0] != first.shape[0] for c in calls),
            ),
            ("settings", any(c.op == first.op and c.detail != first.detail for c in calls)),
        )
        if differs
    ]
    pending: list[Call | None] = [None] * (max(ranks) + 1)
    for rank, call in zip(ranks, calls, strict=True):
        pending[rank] = call
    lines = [line for line in _states(pending, [False] * len(pending)) if "own code" not in line]
    return CollectiveMismatchError(
        "\n".join(
            [f"the ranks met in one call with different {' and '.join(names)}:"]
            + [line.replace("waits in", "calls").replace("wait in", "call") for line in lines]
            + ["All ranks of a group must make the same call at the same time."]
        )
    )


def mismatch_of_message(
    sender: Call, receiver: Call, source, like, ranks: Sequence[int]
) -> CollectiveMismatchError:
    """The error for a message that is not what its receiver expects."""

    def shown(x) -> str:
        return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"

    return CollectiveMismatchError(
        f"a message does not fit: rank {ranks[0]} sends {shown(source)}, rank {ranks[1]} expects "
        f"{shown(like)}.\n"
        f"  rank {ranks[0]} calls {sender}\n      at {sender.where()}\n"
        f"  rank {ranks[1]} calls {receiver}\n      at {receiver.where()}\n"
        "Give recv (or sendrecv's like=) a tensor with the shape and dtype that is sent."
    )


def never_waited(rank: int, calls: Sequence[Call]) -> NeverWaitedError:
    """The error for a rank that returned while handles of its calls were still open."""
    shown = [f"  {call}\n      at {call.where()}" for call in calls[:3]]
    if len(calls) > 3:
        shown.append(f"  and {len(calls) - 3} more")
    what = "a handle" if len(calls) == 1 else f"{len(calls)} handles"
    advice = "Call wait() on each handle that async_op=True gives: the result is only there then."
    return NeverWaitedError(
        "\n".join([f"rank {rank} returned without waiting for {what}:", *shown, advice])
    )


def exited(rank: int, error: SystemExit) -> RankExitedError:
    """The error for a rank that called exit()."""
    frames = error.__traceback__
    last = None
    while frames is not None:
        if not frames.tb_frame.f_code.co_filename.startswith(_HERE):
            last = (
                last if last and "_sitebuiltins" in frames.tb_frame.f_code.co_filename else frames
            )
        frames = frames.tb_next
    where = f" at {place_of(last.tb_frame, last.tb_lineno)}" if last else ""
    return RankExitedError(
        f"rank {rank} called exit({error.code if error.code is not None else ''}){where}; "
        "return a value instead, the other ranks wait for this one."
    )


def outside(frame: FrameType | None) -> str:
    """Names where a rank was: its innermost line that is not distlab's own."""
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return "" if frame is None else place_of(frame)


def place_in_stack(stack: str) -> str:
    """Names the innermost line that is not distlab's own, from faulthandler's text."""
    for name, line, function in re.findall(r'File "(.+)", line (\d+) in (.+)', stack):
        if not name.startswith(_HERE):
            return place(name, function, int(line))
    return ""


def timeout(
    timeout_s: float,
    running: dict[int, str],
    pending: Sequence[Call | None],
    finished: Sequence[bool],
    stuck: Sequence[int],
) -> RankTimeoutError:
    """The error for a run that took too long; `running` says where the running ranks were."""
    lines = [f"the run was stopped after {timeout_s:g} s."]
    for rank, where in running.items():
        lines.append(f"  rank {rank} was running" + (f"\n      at {where}" if where else ""))
    lines += _states(pending, finished, skip=running)
    if stuck:
        lines.append(
            f"  rank {rank_ranges(stuck)} is inside a C call that Python can't interrupt; it goes "
            "on in the background until the kernel is restarted."
        )
    lines.append("Look for a loop that never ends; if the work is real, pass a larger timeout=.")
    return RankTimeoutError("\n".join(lines))


def without_our_frames(error: BaseException) -> BaseException:
    """Cuts distlab's frames off the top of an error's traceback: the student's own come first."""
    frames: TracebackType | None = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_HERE):
        frames = frames.tb_next
    return error.with_traceback(frames)
