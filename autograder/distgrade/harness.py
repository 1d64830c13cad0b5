"""The half of the engine that runs where the student's names are, one case at a time.

`engine.harness_source` ships this file as text; it runs as a script whose namespace holds PAYLOAD
(JSON text) and SPACE (the student's namespace). It imports nothing of ours but what a student has,
holds no reference and no verdict, and whatever the student's objects do, each case ends in exactly
one record: a tree of raw answers, or an error.
"""

import ast
import base64
import builtins
import contextlib
import functools
import importlib
import io
import json
import linecache
import sys
import sysconfig
import types
import warnings

MAX_MESSAGE = 2_000
MAX_SOURCE = 120
STOPS = (KeyboardInterrupt,)


class Stopped(BaseException):
    """A case ends for a reason of the grader's own, told by `kind`."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class Swallow(io.TextIOBase):
    """A stdout or stderr that takes everything and keeps nothing."""

    encoding, errors = "utf-8", "replace"

    def write(self, text):
        """Take a text."""
        return len(text) if isinstance(text, str) else 0

    def writable(self):
        """Say yes."""
        return True

    def isatty(self):
        """Say no."""
        return False


def module_of(text, filename):
    """Return a fresh namespace in which the text ran; its lines are shown in error messages."""
    remember(text, filename)
    space = {"__name__": "__main__", "__builtins__": builtins}
    exec(compiled(text, filename), space)
    return space


@functools.lru_cache(maxsize=256)
def compiled(text, filename):
    """Return the code of a text: every case and seed runs the same two."""
    return compile(text, filename, "exec")


def remember(text, filename):
    """Let tracebacks and the simulator quote the lines of a text that is no file."""
    linecache.cache[filename] = (len(text), None, text.splitlines(keepends=True), filename)


def resolve(dotted):
    """Return what a dotted name such as `distlab.plot.shard_map` stands for."""
    parts = dotted.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        try:
            owner = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        try:
            return functools.reduce(getattr, parts[cut:], owner)
        except AttributeError:
            break
    raise Stopped("grader", f"the forbidden name {dotted} does not exist")


def forbidden_call(*args, **kwargs):
    """Stand in for a library tool that would be the answer."""
    raise RuntimeError("This tool would be the whole answer: write it yourself here.")


def functions_of(thing):
    """Yield the Python functions through which a callable does its work."""
    thing = getattr(thing, "__func__", thing)
    if isinstance(thing, types.FunctionType):
        yield thing
        if "__wrapped__" in vars(thing):
            yield from functions_of(thing.__wrapped__)
    elif isinstance(thing, type):
        for member in list(vars(thing).values()):
            if isinstance(member, types.FunctionType | staticmethod | classmethod):
                yield from functions_of(getattr(member, "__func__", member))


@contextlib.contextmanager
def disabled(dotted_names):
    """Disable forbidden tools in place, so that an alias kept earlier is disabled too."""
    saved = []
    try:
        for dotted in dotted_names:
            for function in functions_of(resolve(dotted)):
                code = function.__code__
                saved.append((function, code))
                free = code.co_freevars
                function.__code__ = forbidden_call.__code__.replace(co_freevars=free)
        yield
    finally:
        for function, code in reversed(saved):
            function.__code__ = code


def unwrapped(thing):
    """Return what a thin wrapper (partial, bound or static method) stands for."""
    for _ in range(10):
        if isinstance(thing, functools.partial):
            thing = thing.func
        elif type(thing) in (types.MethodType, staticmethod, classmethod):
            thing = thing.__func__
        else:
            break
    return thing


def student_objects(payload, space):
    """Return the student's objects by name, or stop the case with the reason there are none."""
    found = types.SimpleNamespace()
    for name in payload["names"]:
        if name not in space:
            raise Stopped("missing", f"`{name}` is not defined.")
        thing = space[name]
        wants_class = name[:1].isupper()
        if wants_class and not issubclass(type(thing), type):
            raise Stopped("wrong-type", f"`{name}` should be a class.")
        if not wants_class and not callable(thing):
            raise Stopped("wrong-type", f"`{name}` should be a function.")
        setattr(found, name, thing)
    for dotted in payload["forbid"]:
        tool = unwrapped(resolve(dotted))
        if any(unwrapped(thing) is tool for thing in vars(found).values()):
            raise Stopped("forbidden", f"`{dotted}` itself is not an answer: write it yourself.")
    return found


def library_folders():
    """Return the folders whose code is not the student's."""
    folders = list(pythons_folders())
    for name in ("distlab", "distgrade", "torch", "numpy"):
        module = sys.modules.get(name)
        folders += list(getattr(module, "__path__", []))
    return tuple({folder.rstrip("/") + "/" for folder in folders if folder})


@functools.cache
def pythons_folders():
    """Return the folders of Python's own library and of what is installed beside it."""
    paths = sysconfig.get_paths()
    return [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]


def place(error, own_files):
    """Return (where in the student's code, whether the student's own line raised)."""
    where, last_is_students, folders = "", False, library_folders()
    trace = error.__traceback__
    for _ in range(2_000):
        if trace is None:
            break
        filename, line = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        ours = filename in own_files or filename.startswith(("<frozen", *folders))
        last_is_students = not ours
        if not ours:
            text = linecache.getline(filename, line).strip()[:MAX_SOURCE]
            function = trace.tb_frame.f_code.co_qualname.rpartition("<locals>.")[2]
            inside = "" if function.startswith("<") else f", in `{function[:60]}`"
            where = f"line {line}{inside}: {text}" if text else f"line {line}{inside}"
        trace = trace.tb_next
    return where, last_is_students


def described(error, own_files):
    """Return the record of an exception, bounded, whatever its methods do."""
    if type(error) is Stopped:
        return {"kind": error.kind, "message": str(error), "where": "", "kinds": []}
    read_mro, read_name = (type.__dict__[key].__get__ for key in ("__mro__", "__name__"))
    kinds = [read_name(base)[:100] for base in read_mro(type(error))]
    try:
        message = str.__str__(str(error))[:MAX_MESSAGE]
    except BaseException:
        message = ""
    try:
        where, own = place(error, own_files)
    except BaseException:
        where, own = "", True
    kind = "timeout" if kinds[0] == "RankTimeoutError" else kinds[0]
    if type(error) is RuntimeError and message == forbidden_message():
        kind = "forbidden"
    if type(error) is NotImplementedError and not own:
        kind = "unimplemented"  # torch's own, say for a backward that is not there
    return {"kind": kind, "message": message, "where": where, "kinds": kinds[:20]}


def safely_described(error, own_files):
    """Return the record of an exception, even of one built to break its description."""
    try:
        return described(error, own_files)
    except BaseException:
        return note("exception", "")


def forbidden_message():
    """Return the sentence that a disabled tool raises."""
    return next(c for c in forbidden_call.__code__.co_consts if type(c) is str and "whole" in c)


def observed(payload, codec, case_text, seed, space, own_files):
    """Return the tree part of one record; raise whatever the student's objects raise."""
    student = student_objects(payload, space)
    case = types.SimpleNamespace(**ast.literal_eval(case_text))
    given = module_of(payload["given"], f"<{payload['exercise']} given>")["given"]
    observe = module_of(payload["observe"], f"<{payload['exercise']} observe>")["observe"]
    try:
        inputs = given(case, seed)
    except Exception as error:
        raise Stopped("grader", f"the inputs could not be made ({type(error).__name__})") from None
    with disabled(payload["forbid"]):
        answer = observe(student, inputs)
    try:
        tree, data = codec["encode"](answer)
    except codec["CodecError"] as error:
        raise Stopped("too-large", str(error)) from None
    return {"tree": tree, "b64": base64.b64encode(data).decode("ascii")}


def main(payload, space, publish, interrupted):
    """Publish one record per (case, seed)."""
    own_files = {"<distgrade harness>"}
    own_files |= {f"<{payload['exercise']} {part}>" for part in ("given", "observe", "codec")}
    codec = globals().get("CODEC") or module_of(payload["codec"], f"<{payload['exercise']} codec>")
    stopped = interrupt = False
    for index, case_text in enumerate(payload["cases"]):
        if payload.get("only") not in (None, index):
            continue
        for seed in payload["seeds"]:
            record = {key: payload[key] for key in ("nonce", "exercise")}
            record |= {"case": index, "seed": seed}
            if stopped:
                record["error"] = note("timeout", "not reached: an earlier case was stopped")
            else:
                quiet = Swallow()
                saved = sys.stdout, sys.stderr
                try:
                    sys.stdout = sys.stderr = quiet
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        record |= observed(payload, codec, case_text, seed, space, own_files)
                except STOPS:
                    stopped = interrupt = True
                    record["error"] = note("timeout", "stopped: it ran for too long")
                except BaseException as error:
                    record["error"] = safely_described(error, own_files)
                    # One endless loop costs one timeout, not one per case and seed.
                    stopped = record["error"]["kind"] == "timeout"
                finally:
                    sys.stdout, sys.stderr = saved
            publish({payload["mime"]: record})
    if interrupt:
        interrupted(True)


def note(kind, message):
    """Return an error record of the harness's own."""
    return {"kind": kind, "message": message, "where": "", "kinds": []}


def publish_in_kernel(bundle):
    """Publish a record as display data of the running cell."""
    from IPython.core.interactiveshell import InteractiveShell

    InteractiveShell.instance().display_pub.publish(data=bundle, metadata={})


if "PAYLOAD" in globals():
    main(
        json.loads(globals()["PAYLOAD"]),
        globals()["SPACE"],
        globals().get("PUBLISH", publish_in_kernel),
        globals().get("INTERRUPTED", id),
    )
