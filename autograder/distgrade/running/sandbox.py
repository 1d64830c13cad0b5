"""Locks a process in before it runs a student's code, and measures what that is worth here.

`confine` takes rights away from the calling process, for good, in layers; `seal` then takes the
last one, making sockets, once the kernel has those it needs.

| layer     | takes away                                                   | needs              |
|-----------|--------------------------------------------------------------|--------------------|
| Landlock  | files outside what is granted; signals to others, and a look | Linux 5.13         |
|           | into their memory                                            | (signals: 6.12)    |
| seccomp   | network, starting processes, system calls that nobody needs  | Linux, libseccomp  |
| limits    | memory, size of a file, open files                           | any Unix           |
| user      | whatever the grader's user may do: another user where the    | a grader that is   |
|           | grader is root, at least no capabilities                     | root               |

A layer that a machine lacks is left out, silently, so a grader works everywhere. What is there is
therefore not asked of the machine but *tried*: `probe` confines a process of its own and lets it
attempt each thing that must not work. Nobody claims what did not hold.

This module and `kernelhost` run beside the student's code, by their path. They import nothing of
distgrade, so that none of it is in that process. Source: landlock(7), seccomp(2), prctl(2).
"""

from __future__ import annotations

import contextlib
import errno
import json
import mmap
import os
import resource
import socket
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path

# Loaded before anything is taken away, since looking for a library starts processes.
try:
    import landlockpy as landlock
except ImportError:  # pragma: no cover: an installation without it
    landlock = None
try:
    import pyseccomp as seccomp
except Exception:  # not Linux, or no libseccomp: the module says so in several ways
    seccomp = None
try:
    import pyprctl
except Exception:  # not Linux
    pyprctl = None

GIB = 2**30
FIRST_USER = 1_900_000_000  # ids from here on are nobody's but a kernel's
THREADS = 4096  # of a user of its own; the simulator starts one for each rank
# What a Python program reads outside of its own installation, besides the course's library.
SYSTEM = (
    *("/usr/lib", "/usr/lib64", "/usr/bin", "/usr/share", "/usr/local/lib", "/usr/local/bin"),
    *("/lib", "/lib64", "/bin", "/etc/ld.so.cache", "/etc/localtime", "/etc/fonts", "/etc/ssl"),
    *("/etc/alternatives", "/etc/mime.types", "/proc/self", "/proc/cpuinfo", "/proc/meminfo"),
    *("/proc/stat", "/proc/sys/kernel", "/sys/devices/system"),
)
DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
ZERO = "/dev/zero"  # to read only: what is written into a shared map of it is memory, uncounted
HIDDEN = "distgrade"  # what an installation holds of the grader itself
CLONE_THREAD = 0x10000
# System calls that no exercise needs, and that reach other processes, or around these layers.
REFUSED = (
    *("fork", "vfork", "execve", "execveat", "ptrace", "process_vm_readv", "process_vm_writev"),
    *("pidfd_open", "pidfd_getfd", "pidfd_send_signal", "process_madvise", "kcmp", "tkill"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register", "perf_event_open", "bpf"),
    *("userfaultfd", "add_key", "request_key", "keyctl", "unshare", "setns", "mount", "umount2"),
    *("open_tree", "move_mount", "fsopen", "fsmount", "pivot_root", "chroot", "open_by_handle_at"),
    *("init_module", "finit_module", "delete_module", "kexec_load", "reboot", "swapon", "swapoff"),
    *("setdomainname", "sethostname", "settimeofday", "clock_settime", "quotactl", "acct"),
    *("chown", "lchown", "fchown", "fchownat", "removexattr", "lremovexattr", "fremovexattr"),
    *("rt_sigqueueinfo", "rt_tgsigqueueinfo", "shmget", "msgget", "semget", "mq_open"),
    *("memfd_create", "memfd_secret"),
)
# Landlock does not cover a file's mode, owner, times and attributes. Libraries set modes and times
# of files they have made and expect no refusal, so these calls do nothing and say they have.
IGNORED = (
    *("chmod", "fchmod", "fchmodat", "fchmodat2", "utime", "utimes", "futimesat", "utimensat"),
    *("setxattr", "lsetxattr", "fsetxattr", "setxattrat", "file_setattr"),
)
SOCKETS = ("socket", "connect", "bind", "listen")


@dataclass(frozen=True)
class Rules:
    """What the process may still do.

    `folder` is its own, to read and write; `readable` are files and folders it may read besides
    the Python installation. `user` is the id it takes where the grader is root; None keeps it.
    """

    folder: str
    readable: tuple[str, ...] = ()
    memory_bytes: int = 4 * GIB
    file_bytes: int = 128 * 2**20
    open_files: int = 512
    user: int | None = None


def installation() -> list[str]:
    """Returns the files and folders of this Python, without the grader's own package."""
    prefixes = {Path(sys.prefix), Path(sys.base_prefix)} - {Path("/usr")}  # in SYSTEM, by piece
    return [str(path) for prefix in prefixes for path in _without_grader(prefix)]


def _without_grader(prefix: Path) -> list[Path]:
    """Returns the prefix, or what it holds where the grader is installed in it by copy."""
    packages = Path(sysconfig.get_path("purelib", vars={"base": str(prefix)}))
    if not (packages / HIDDEN).exists():
        return [prefix]
    found = []
    for folder in (prefix, *packages.relative_to(prefix).parents, packages):
        within = prefix / folder
        found += [
            path
            for path in within.iterdir()
            if path not in (packages, *packages.parents) and path.name != HIDDEN
        ]
    return found


# --- the layers ------------------------------------------------------------------------------


def confine(rules: Rules) -> None:
    """Takes away all that the rules do not grant. Call it before the process has threads."""
    _limit(rules)
    _close_files(rules)
    _filter_calls()
    _drop_rights(rules)


def seal() -> None:
    """Takes away making and naming sockets, in all threads: what is open stays open."""
    if seccomp is None:
        return
    calls = seccomp.SyscallFilter(seccomp.ALLOW)
    for name in SOCKETS:
        calls.add_rule(seccomp.ERRNO(errno.EACCES), name)
    calls.set_attr(seccomp.Attr.CTL_TSYNC, 1)
    with contextlib.suppress(OSError):
        calls.load()


def _limit(rules: Rules) -> None:
    for kind, most in (
        (resource.RLIMIT_DATA, rules.memory_bytes),
        (resource.RLIMIT_FSIZE, rules.file_bytes),
        (resource.RLIMIT_NOFILE, rules.open_files),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(OSError, ValueError):
            hard = resource.getrlimit(kind)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(kind, (most, most))


def _close_files(rules: Rules) -> None:
    if landlock is None or not landlock.supported():
        return
    fs = landlock.AccessFS
    everything = ~fs.NONE
    on_file = fs.READ_FILE | fs.WRITE_FILE
    scope = landlock.Scope.SIGNAL | landlock.Scope.ABSTRACT_UNIX_SOCKET
    with landlock.Ruleset(scoped=scope) as ruleset:
        for path in (*installation(), *SYSTEM, *rules.readable):
            with contextlib.suppress(OSError):  # one that is not there needs no rule
                read = fs.READ_FILE | (fs.READ_DIR if os.path.isdir(path) else fs.NONE)
                ruleset.allow_path(path, read)
        for path in DEVICES:
            with contextlib.suppress(OSError):
                ruleset.allow_path(path, on_file)
        with contextlib.suppress(OSError):
            ruleset.allow_path(ZERO, fs.READ_FILE)
        ruleset.allow_path(rules.folder, everything)
        ruleset.restrict()


def _filter_calls() -> None:
    if seccomp is None:
        return
    calls = seccomp.SyscallFilter(seccomp.ALLOW)
    refuse, me = seccomp.ERRNO(errno.EPERM), os.getpid()
    nothing = seccomp.ERRNO(0)
    for action, names in ((refuse, REFUSED), (nothing, IGNORED)):
        for name in names:
            with contextlib.suppress(OSError, ValueError):  # an architecture may lack one
                calls.add_rule(action, name)
    # Threads yes, processes no. clone3 hides its flags in memory: without it, libc takes clone.
    no_thread = seccomp.Arg(0, seccomp.MASKED_EQ, CLONE_THREAD, 0)
    calls.add_rule(refuse, "clone", no_thread)
    calls.add_rule(seccomp.ERRNO(errno.ENOSYS), "clone3")
    calls.add_rule(
        seccomp.ERRNO(errno.EACCES), "socket", seccomp.Arg(0, seccomp.NE, socket.AF_UNIX)
    )
    for name in ("kill", "tgkill"):
        calls.add_rule(refuse, name, seccomp.Arg(0, seccomp.NE, me))
    # The limit on memory leaves out what could be shared with another process, and there is none.
    shared = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS
    no_memory = seccomp.ERRNO(errno.ENOMEM)
    calls.add_rule(no_memory, "mmap", seccomp.Arg(3, seccomp.MASKED_EQ, shared, shared))
    with contextlib.suppress(OSError):
        calls.load()


def _drop_rights(rules: Rules) -> None:
    if os.geteuid() != 0:
        return
    if rules.user is not None:
        try:
            os.setgroups([])
            os.setresgid(rules.user, rules.user, rules.user)
            os.setresuid(rules.user, rules.user, rules.user)
            resource.setrlimit(resource.RLIMIT_NPROC, (THREADS, THREADS))
            return
        except OSError:  # such as a container that knows no such user
            pass
    if pyprctl is not None:
        with contextlib.suppress(OSError):
            pyprctl.CapState().set_current()


def user_for(number: int) -> int | None:
    """Returns a user id of nobody's for a confined process, or None where it could run nothing.

    The grader must be root, and everybody must be able to reach the Python it runs on.
    """
    if os.geteuid() != 0:
        return None
    for path in {sys.prefix, sys.base_prefix, os.path.dirname(os.path.realpath(sys.executable))}:
        for above in (Path(path), *Path(path).parents):
            if not above.stat().st_mode & 0o001:
                return None
    return FIRST_USER + number % 10_000_000


# --- what it is worth here -------------------------------------------------------------------

# What a confined process must not be able to do, and how a person would say that it can't.
DEEDS = {
    "read": "reads nothing outside its folder",
    "write": "writes nothing outside its folder",
    "network": "has no network",
    "process": "starts no process",
    "signal": "signals nobody",
    "spy": "sees nothing of other processes",
    "memory": "has limited memory",
    "file": "writes no large file",
}


@dataclass(frozen=True)
class Protection:
    """Which deeds failed, as they must, when a confined process tried them on this machine."""

    held: frozenset[str] = field(default_factory=frozenset)

    @property
    def level(self) -> str:
        """Returns "full", "partial" or "none"."""
        if self.held >= set(DEEDS):
            return "full"
        return "partial" if self.held & set(DEEDS) else "none"

    def __str__(self) -> str:
        missing = [told for deed, told in DEEDS.items() if deed not in self.held]
        if not missing:
            return "full: a student's code " + ", ".join(DEEDS.values())
        if self.level == "none":
            return "none: a student's code may do all that the grader's user may do"
        return "partial: not guaranteed here is that a student's code " + ", ".join(missing)


def attempt(rules: Rules, outside: str) -> list[str]:
    """Tries every deed in this process, already confined; returns those that did not work.

    `outside` is a file beyond the granted folders; this process's parent is who must be safe.
    """
    parent, folder = os.getppid(), Path(rules.folder)

    def network():
        socket.socket(socket.AF_INET, socket.SOCK_STREAM).close()

    def process():
        pid = os.fork()
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    def memory():
        for kind in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
            with contextlib.suppress(OSError, MemoryError):
                mmap.mmap(-1, rules.memory_bytes + 1, kind | mmap.MAP_ANONYMOUS).close()
                return
        raise MemoryError

    def file():
        with open(folder / "large", "wb") as large:
            large.truncate(rules.file_bytes + 1)

    deeds = {
        "read": lambda: Path(outside).read_bytes(),
        "write": lambda: Path(outside).with_name("written").write_bytes(b"here"),
        "network": network,
        "process": process,
        "signal": lambda: os.kill(parent, 0),
        "spy": lambda: Path(f"/proc/{parent}/environ").read_bytes(),
        "memory": memory,
        "file": file,
    }
    held = []
    for name, deed in deeds.items():
        try:
            deed()
        except (OSError, MemoryError):
            held.append(name)
    return held


def probe(rules: Rules, outside: str) -> Protection:
    """Returns what holds here: forks, confines the child and lets it try.

    Cost: some 50 ms, in a process that may fork.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            confine(rules)
            os.write(write, json.dumps(attempt(rules, outside)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as answer:
        told = answer.read()
    os.waitpid(pid, 0)
    return Protection(frozenset(json.loads(told)) if told else frozenset())
