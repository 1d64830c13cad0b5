"""What a student's code can't do while it is graded, tried from inside; nothing stays after it."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from distgrade.outputs import Collector
from distgrade.running import kernels
from distgrade.running.kernel import Kernel
from distgrade.running.kernels import Forked, Spawned, protection
from distgrade.running.sandbox import DEEDS, Protection

SLOW = pytest.mark.slow
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="the layers are Linux's")
HERE = Path(__file__).resolve()
SANDBOX = Path(kernels.PROGRAM).parent

pytestmark = [SLOW, LINUX]


def told(kernel: Kernel, source: str, timeout_s: float = 60.0) -> str:
    """What a cell printed, or how it ended."""
    seen = Collector()
    end = kernel.execute(textwrap.dedent(source), seen.take, timeout_s=timeout_s)
    text = "".join(o.text for o in seen.outputs if o.output_type == "stream")
    return text.strip() if end.state == "ok" else f"{end.state}: {end.name}{end.text}"


@pytest.fixture(scope="module")
def kernel():
    with Kernel() as kernel:
        yield kernel


def test_here_everything_holds():
    # Where a layer is missing this is no fault of ours, and then it must be said.
    found = protection()
    assert found.level == "full", f"this machine protects only in part: {found}"


@pytest.fixture(scope="module")
def outside(tmp_path_factory):
    folder = tmp_path_factory.mktemp("outside")
    (folder / "secret").write_text("a secret")
    return folder


# Each is a way out; a cell that gets through prints "out".
WAYS = {
    "read the grader's tests": f"open({str(HERE)!r}).read(); print('out')",
    "read an exercise's room": f"""
        import os; os.listdir({str(SANDBOX / "labs")!r}); print('out')""",
    "import the grader": "import distgrade; print('out')",
    "list the folder of folders": "import os; os.listdir('/tmp'); print('out')",
    "read a password file": "open('/etc/shadow').read(); print('out')",
    "read the home folder": "import os; os.listdir(os.path.expanduser('~root')); print('out')",
    "read by a link": """
        import os; os.symlink('OUTSIDE/secret', 'link'); open('link').read(); print('out')""",
    "take over by a hard link": """
        import os; os.link('OUTSIDE/secret', 'hard'); open('hard').read(); print('out')""",
    "write beside": "open('OUTSIDE/new', 'w').write('x'); print('out')",
    "delete": "import os; os.remove('OUTSIDE/secret'); print('out')",
    "truncate": "import os; os.truncate('OUTSIDE/secret', 0); print('out')",
    "change a mode": """
        import os; os.chmod('OUTSIDE/secret', 0o777)
        print('out' if os.stat('OUTSIDE/secret').st_mode & 0o777 == 0o777 else 'no')""",
    "change a mode of what can be read": """
        import os, distlab; path = distlab.__file__; os.chmod(path, 0o777)
        os.fchmod(os.open(path, os.O_RDONLY), 0o777)
        print('out' if os.stat(path).st_mode & 0o777 == 0o777 else 'no')""",
    "change an owner": "import os; os.chown('OUTSIDE/secret', 1, 1); print('out')",
    "change a time": """
        import os; os.utime('OUTSIDE/secret', (0, 0))
        print('out' if os.stat('OUTSIDE/secret').st_mtime == 0 else 'no')""",
    "set an attribute": """
        import os; os.setxattr('OUTSIDE/secret', 'user.a', b'x')
        print('out' if os.listxattr('OUTSIDE/secret') else 'no')""",
    "move": "import os; os.rename('OUTSIDE/secret', 'OUTSIDE/other'); print('out')",
    "make a folder": "import os; os.mkdir('OUTSIDE/folder'); print('out')",
    "read in a thread that was there before": """
        import threading
        done, got = threading.Event(), []
        def look():
            try: got.append(open('OUTSIDE/secret').read())
            except OSError as error: got.append(error)
            done.set()
        get_ipython().kernel.iopub_thread.io_loop.asyncio_loop.call_soon_threadsafe(look)
        done.wait(20)
        print('out' if isinstance(got[0], str) else got)""",
    "take memory to share": "import mmap; mmap.mmap(-1, 5 << 30)[0:1] = b'x'; print('out')",
    "take memory by its device": """
        import mmap
        mmap.mmap(open('/dev/zero', 'r+b').fileno(), 5 << 30)[0:1] = b'x'; print('out')""",
    "take memory as a file": "import os; os.memfd_create('x'); print('out')",
    "start a program": "import subprocess; subprocess.run(['true']); print('out')",
    "ask a shell": "import os; print('out' if os.system('true') == 0 else 'no')",
    "spawn": "import os; os.posix_spawn('/bin/true', ['true'], {}); print('out')",
    "fork": "import os; pid = os.fork(); print('out')",
    "fork by libc": """
        import ctypes; pid = ctypes.CDLL(None).fork(); print('no' if pid < 0 else 'out')""",
    "vfork by number": """
        import ctypes, platform
        call = {'x86_64': 58}.get(platform.machine(), 1079)
        print('no' if ctypes.CDLL(None).syscall(call) < 0 else 'out')""",
    "become another program": "import os; os.execv('/bin/true', ['true'])",
    "a pool of processes": """
        import multiprocessing as m; m.get_context('fork').Pool(1); print('out')""",
    "signal the parent": "import os; os.kill(os.getppid(), 0); print('out')",
    "signal everybody": "import os; os.kill(-1, 0); print('out')",
    "signal the first process": "import os; os.kill(1, 0); print('out')",
    "signal through a descriptor": "import os; os.pidfd_open(os.getppid()); print('out')",
    "read the parent's variables": """
        import os; open(f'/proc/{os.getppid()}/environ').read(); print('out')""",
    "read the parent's memory": """
        import os; open(f'/proc/{os.getppid()}/mem', 'rb'); print('out')""",
    "see who runs": "import os; os.listdir('/proc'); print('out')",
    "network": "import socket; socket.socket(); print('out')",
    "network, six": "import socket; socket.socket(socket.AF_INET6); print('out')",
    "raw network": "import socket; socket.socket(socket.AF_PACKET, 3); print('out')",
    "netlink": "import socket; socket.socket(socket.AF_NETLINK, 3); print('out')",
    "a socket of this machine": "import socket; socket.socket(socket.AF_UNIX); print('out')",
    "a name": "import socket; socket.getaddrinfo('localhost', 80); print('out')",
    "io_uring": """
        import ctypes
        print('no' if ctypes.CDLL(None).syscall(425, 8, None) < 0 else 'out')""",
    "trace": """
        import ctypes, os
        print('no' if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) < 0 else 'out')""",
    "a namespace": """
        import ctypes; print('no' if ctypes.CDLL(None).unshare(0x10000000) < 0 else 'out')""",
    "much memory": "x = bytearray(9 * 2**30); print('out')",
    "a large file": """
        with open('large', 'wb') as file: file.truncate(2**30)
        print('out')""",
    "many open files": """
        import os; files = [open(os.devnull) for _ in range(2000)]; print('out')""",
    "a variable of the grader's": """
        import os; print('out' if 'DISTGRADE_SECRET' in os.environ else 'no')""",
    "the sandbox's own module": """
        import sys; print('out' if {'sandbox', 'kernelhost'} & set(sys.modules) else 'no')""",
    "rise again": """
        import os; os.setuid(0); open('OUTSIDE/secret').read(); print('out')""",
}


@pytest.mark.parametrize("way", WAYS)
def test_no_way_out(kernel, outside, way, monkeypatch):
    monkeypatch.setenv("DISTGRADE_SECRET", "not for students")
    answer = told(kernel, WAYS[way].replace("OUTSIDE", str(outside)))
    assert "out" not in answer.split(), answer
    assert (outside / "secret").read_text() == "a secret"
    assert [p.name for p in outside.iterdir()] == ["secret"]
    assert kernel.alive


def test_these_ways_are_open_without_confinement(outside):
    """The deeds above are real: most of them work in a process that nobody confined."""
    program = "import sys\n" + "\n".join(
        f"try:\n{textwrap.indent(textwrap.dedent(WAYS[way]), '    ')}\nexcept OSError: pass"
        for way in ("read the grader's tests", "start a program", "network", "see who runs")
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout.split() == ["out"] * 4, done


def test_honest_work_is_not_in_its_way(kernel):
    works = """
        import threading, tempfile, torch, numpy, os, json
        from distlab import run
        x = torch.ones(64, 64, requires_grad=True)
        (x @ x).sum().backward()
        print(run(lambda comm: comm.all_reduce(torch.ones(2)), 8).values[0])
        with open('mine', 'w') as file: file.write('x')
        with tempfile.TemporaryFile() as file: file.write(b'x')
        threading.Thread(target=lambda: None).start()
        import shutil; shutil.copy('mine', 'copy')
        print(os.listdir(), torch.linalg.qr(torch.eye(3))[1].shape, numpy.random.rand() < 1)
    """
    assert "mine" in told(kernel, works)


def test_every_kernel_has_randomness_of_its_own():
    draw = "import random, numpy; print(random.random(), numpy.random.rand())"
    numbers = []
    for _ in range(2):
        with Kernel() as kernel:
            numbers += told(kernel, draw).split()
    assert len(set(numbers)) == 4


def test_files_that_fill_the_disk_stop_the_cell(monkeypatch):
    monkeypatch.setattr("distgrade.running.kernel.MAX_FOLDER_BYTES", 20 * 2**20)
    filling = """
        import itertools, time
        for i in itertools.count():
            with open(f'{i}', 'wb') as file: file.write(bytes(2**20))
            time.sleep(0.02)
    """
    with Kernel() as kernel:
        folder = kernel._folder
        assert told(kernel, filling).startswith("flood")
    assert not folder.exists()


@pytest.mark.parametrize("source", [Forked, Spawned])
def test_a_kernel_leaves_nothing_behind(source):
    with Kernel(source) as kernel:
        assert told(kernel, "import os; print(os.listdir())") == "[]"
        assert told(kernel, "import os; print(os.environ['DISTLAB_CHECK'])") == "off"
        pid, folder = kernel.pid, kernel._folder
        family = psutil.Process(pid).parent().pid if source is Forked else pid
        assert "died" in told(kernel, "import os; os._exit(3)")
        assert "exit code 3" in kernel._obituary()
    kernels.close_idle()
    assert not folder.exists()
    assert not psutil.pid_exists(pid)
    assert not psutil.pid_exists(family)


def gone(pids: list[int]) -> bool:
    """Whether these processes end, within a generous time."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if not any(psutil.pid_exists(p) and _runs(p) for p in pids):
            return True
        time.sleep(0.05)
    return False


def _runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


HELD = """
import time
from distgrade.running.kernel import Kernel
kernel = Kernel().__enter__()
print(kernel._source.host, kernel.pid, kernel._folder, flush=True)
kernel.execute("while True: pass", lambda *_: None, timeout_s=1000)
"""


@pytest.mark.parametrize("killed", ["grader", "host"])
def test_who_is_killed_takes_the_kernel_along(killed):
    grader = subprocess.Popen([sys.executable, "-c", HELD], stdout=subprocess.PIPE, text=True)
    try:
        host, kernel, folder = grader.stdout.readline().split()
        host, kernel = int(host), int(kernel)
        assert _runs(kernel)
        os.kill(grader.pid if killed == "grader" else host, 9)
        assert gone([host, kernel])
    finally:
        grader.kill()
        grader.wait()
        grader.stdout.close()
        subprocess.run(["rm", "-rf", folder], check=True)


def without(layers: str) -> Protection:
    """What holds where some layers are missing: told by a process in which they are."""
    program = textwrap.dedent(
        f"""
        import json, sys, tempfile
        sys.path.insert(0, {str(SANDBOX)!r})
        import sandbox
        {layers}
        with tempfile.TemporaryDirectory() as own, tempfile.TemporaryDirectory() as other:
            open(other + "/secret", "w").close()
            found = sandbox.probe(sandbox.Rules(folder=own), other + "/secret")
        print(json.dumps(sorted(found.held)))
        """
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return Protection(frozenset(json.loads(done.stdout)))


def test_a_missing_layer_is_reported_and_never_claimed():
    no_files = without("sandbox.landlock = None")
    assert no_files.level == "partial"
    assert not {"read", "write"} & no_files.held
    assert "not guaranteed here is that a student's code reads nothing outside" in str(no_files)
    no_calls = without("sandbox.seccomp = None")
    assert no_calls.level == "partial"
    assert "process" not in no_calls.held
    nothing = without("sandbox.confine = lambda rules: None")
    assert nothing.held <= {"spy", "memory"}  # what the machine itself may refuse
    assert Protection().level == "none"
    assert str(Protection()).startswith("none: ")
    assert str(Protection(frozenset(DEEDS))).startswith("full: ")


def test_a_grader_that_was_copied_is_not_readable(tmp_path, monkeypatch):
    from distgrade.running import sandbox

    packages = tmp_path / "lib" / "python3.11" / "site-packages"
    for name in ("distgrade", "torch"):
        (packages / name).mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    names = {path.relative_to(tmp_path).as_posix() for path in sandbox._without_grader(tmp_path)}
    assert names == {"bin", "lib/python3.11/site-packages/torch"}
    (packages / "distgrade").rmdir()
    assert sandbox._without_grader(tmp_path) == [tmp_path]
