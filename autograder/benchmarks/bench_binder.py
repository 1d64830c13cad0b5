"""Memory of a learner's session as on Binder: server, kernels, ranks, Validate's own kernel.

Aim: under 2 GB, which is what Binder gives. Starts `start` in a copy of the course and runs solved
labs there, as a learner would at the end. A page that processes share counts once; file pages are
counted too, although a machine in need can drop those. Fails over the aim; Linux only.
"""

import http.client
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.parse
from pathlib import Path

import psutil
from jupyter_client import BlockingKernelClient

from distgrade.notebook import read_notebook, strip_hidden

ROOT = Path(__file__).resolve().parents[2]
AIM_BYTES = 2e9
PERIOD_S = 0.3
LIMIT_S = 900
LABS = ("lab03-tensor-parallel", "lab07-3d-search")
RANKS = """
import torch
from distlab import run

def busy(comm, x):
    for _ in range(20):
        x = comm.all_reduce(x @ x) / comm.size ** 2
    return x.sum()

run(busy, 4, torch.eye(500), engine={engine!r}, timeout=300).values
"""
FIELD = re.compile(r"^(Rss|Anonymous): +(\d+) kB", re.M)


def held_bytes(top: psutil.Process) -> int:
    """Returns what a process and all below it hold, each shared page once."""
    private, files = 0, {}
    for process in [top, *top.children(recursive=True)]:
        try:
            rolled = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
            maps = Path(f"/proc/{process.pid}/smaps").read_text()
        except OSError:
            continue  # it has ended
        private += sum(
            int(kb) for kb in re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB", rolled, re.M)
        )
        for block in re.split(r"(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", maps)[1:]:
            head = block.split("\n", 1)[0].split(maxsplit=5)
            if head[4] != "0":  # an inode: a file
                found = {name: int(kb) for name, kb in FIELD.findall(block)}
                key = (head[3], head[4], head[2])
                files[key] = max(files.get(key, 0), found["Rss"] - found["Anonymous"])
    return 1024 * (private + sum(files.values()))


class Watch:
    """Notes the most that was held since it was last asked."""

    def __init__(self, pid: int):
        self.top, self.most, self.over = psutil.Process(pid), 0, threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self) -> None:
        while not self.over.wait(PERIOD_S):
            try:
                self.most = max(self.most, held_bytes(self.top))
            except psutil.NoSuchProcess:
                return

    def took(self) -> int:
        time.sleep(2 * PERIOD_S)
        most, self.most = self.most, 0
        return most


def copy_course(folder: Path) -> None:
    """Writes what Binder has of the course and this needs; two labs are solved."""
    for name in ("release", "source", "lib/jupyter"):
        shutil.copytree(ROOT / name, folder / name)
    for path in (ROOT / "start", ROOT / "nbgrader_config.py", *ROOT.glob("lib/bootstrap_*.py")):
        shutil.copy(path, folder / path.relative_to(ROOT))
    for lab in LABS:
        place = Path(lab) / f"{lab}.ipynb"
        solved = json.loads((folder / "source" / place).read_text())
        released = json.loads((folder / "release" / place).read_text())
        answers = {cell["id"]: strip_hidden("".join(cell["source"])) for cell in solved["cells"]}
        for cell in released["cells"]:
            cell["source"] = answers[cell["id"]]
        (folder / "release" / place).write_text(json.dumps(released))


class Server:
    """JupyterLab as Binder starts it."""

    def __init__(self, folder: Path):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("JUPYTER", "DISTLAB"))}
        env["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), env["PATH"]])
        state = folder / "state"
        for kind in ("CONFIG", "DATA", "RUNTIME"):
            env[f"JUPYTER_{kind}_DIR"] = str(state / kind.lower())
        state.mkdir()
        self.runtime = state / "runtime"
        options = ["--ip=127.0.0.1", "--no-browser", "--allow-root", "--port=0"]
        with (state / "log").open("w") as log:
            self.process = subprocess.Popen(
                [str(folder / "start"), "jupyter", "notebook", *options],
                env=env,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        note = self.runtime / f"jpserver-{self.process.pid}.json"
        while not note.exists():
            if self.process.poll() is not None:
                sys.exit((state / "log").read_text())
            time.sleep(0.1)
        self.told = json.loads(note.read_text())

    def post(self, path: str, body: dict) -> dict:
        """Returns what the server answers."""
        url = urllib.parse.urlsplit(self.told["url"])
        link = http.client.HTTPConnection(url.hostname, url.port, timeout=LIMIT_S)
        head = {
            "Authorization": f"token {self.told['token']}",
            "Content-Type": "application/json",
        }
        link.request("POST", url.path + path, json.dumps(body), head)
        answer = link.getresponse()
        text = answer.read()
        if answer.status >= 400:
            sys.exit(f"{path}: {answer.status} {text[:500]!r}")
        return json.loads(text)

    def kernel(self, lab: str) -> BlockingKernelClient:
        """Opens a lab; returns a client of its kernel."""
        path = f"{lab}/{lab}.ipynb"
        asked = {"path": path, "name": lab, "type": "notebook", "kernel": {"name": "python3"}}
        session = self.post("api/sessions", asked)
        client = BlockingKernelClient(
            connection_file=str(self.runtime / f"kernel-{session['kernel']['id']}.json")
        )
        client.load_connection_file()
        client.start_channels()
        while True:  # a busy machine's kernel is late to answer its first heartbeat
            try:
                client.wait_for_ready(timeout=LIMIT_S)
                return client
            except RuntimeError:
                client.hb_channel.unpause()


def execute(client: BlockingKernelClient, code: str) -> None:
    reply = client.execute_interactive(code, timeout=LIMIT_S, output_hook=lambda message: None)
    if reply["content"]["status"] != "ok":
        sys.exit(f"{reply['content']['ename']}: {reply['content']['evalue']}\n{code}")


def run_all(client: BlockingKernelClient, path: Path) -> None:
    for cell in read_notebook(path).cells:
        if cell.cell_type == "code":
            execute(client, cell.source)


def main() -> None:
    over = []
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        copy_course(folder)
        server = Server(folder)
        watch = Watch(server.process.pid)

        def tell(what: str) -> None:
            size_bytes = watch.took()
            print(f"{size_bytes / 1e6:6.0f} MB  {what}", flush=True)
            over.extend([what] if size_bytes > AIM_BYTES else [])

        try:
            tell("the server")
            lab3 = server.kernel(LABS[0])
            execute(lab3, RANKS.format(engine="sim"))
            tell("and a kernel, four simulated ranks")
            execute(lab3, RANKS.format(engine="gloo"))
            tell("and a kernel, four gloo ranks")
            run_all(lab3, folder / "work" / LABS[0] / f"{LABS[0]}.ipynb")
            tell("all of lab 3 run, pictures and checks included")
            told = server.post("assignments/validate", {"path": f"{LABS[0]}/{LABS[0]}.ipynb"})
            if not told["success"]:
                sys.exit(told["value"])
            tell("Validate runs it again in a second kernel")
            run_all(server.kernel(LABS[1]), folder / "work" / LABS[1] / f"{LABS[1]}.ipynb")
            tell("all of lab 7 run beside it, eight gloo ranks included")
        finally:
            watch.over.set()
            server.process.terminate()
            server.process.wait(60)
    if over:
        sys.exit(f"over {AIM_BYTES / 1e9:g} GB: {', '.join(over)}")


if __name__ == "__main__":
    main()
