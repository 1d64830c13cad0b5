"""The zoo: bad submissions of two exercises, what each must earn, and what must be said of it.

Most are cheats written against this grader, by somebody who has read it. Two exercises stand for
all: `f_and_g` comes first and is solved, so it must keep its marks; the cheat is on `row_linear`,
whose last point is for bytes in the ledger.
"""

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import nbformat
from nb_tools import LAB, ROOT, answered, clone, code, place, released_lab, solutions

from distgrade import references
from distgrade.codec import encode
from distgrade.exercise import load
from distgrade.notebook import read_notebook

F, ROW = "lab03.f_and_g", "lab03.row_linear"
KEPT = ("f_and_g", "row_linear")
HEAD = "def row_linear(comm, x_shard, w_shard, b, *, g):\n    "
WRONG = HEAD + "return x_shard @ w_shard + b"


def release():
    """The lab's release with two of its exercises, and its written answer."""
    nb = released_lab()
    kept = {"setup", "written", *KEPT, *(f"{name}-test" for name in KEPT)}
    nb.cells = [cell for cell in nb.cells if cell.id in kept]
    return nb


def solved(**answers):
    """A submission with right answers, but for those given."""
    return answered(solutions() | answers, release())


@dataclass(frozen=True)
class Beast:
    """A submission; `earns` has points by exercise, `says` what its reason or notes must hold."""

    name: str
    make: Callable
    earns: Mapping[str, float]
    says: str = ""
    limit: str = ""  # a word of the guide's "Known limits", where the mark is not what is deserved


BEASTS: list[Beast] = []
FULL, NONE, ONLY_F = {F: 4, ROW: 4}, {F: 0, ROW: 0}, {F: 4, ROW: 0}


def beast(name, make, earns=ONLY_F, says="", limit=""):
    BEASTS.append(Beast(name, make, earns, says, limit))


def cell(name, source, earns=ONLY_F, says="", *, at="row_linear", answer=WRONG, limit=""):
    """A cell above another one, beside a wrong answer."""

    def make():
        nb = solved() if answer is None else solved(row_linear=answer)
        nb.cells.insert(place(nb, at), code(source))
        return nb

    beast(name, make, earns, says, limit)


def answer(name, source, earns=ONLY_F, says="", limit=""):
    """Another answer to row_linear."""
    beast(name, lambda: solved(row_linear=source), earns, says, limit)


def body(name, line, earns=ONLY_F, says="", limit=""):
    """Another body of row_linear."""
    answer(name, HEAD + line.replace("\n", "\n    "), earns, says, limit)


def edited(name, earns=FULL, says="", **answers):
    """A submission whose notebook an edit changes."""

    def keep(edit):
        def make():
            nb = solved(**answers)
            return edit(nb) or nb

        beast(name, make, earns, says)
        return edit

    return keep


# --- honest, if odd ---------------------------------------------------------------------------

beast("honest", solved, FULL)
beast("blank", release, NONE, "`row_linear` is not written yet.")
answer("a callable object", f"import functools\n{HEAD}return g.apply(x_shard @ w_shard, comm) + b\n"
       "row_linear = functools.partial(row_linear)", FULL)  # fmt: skip
cell(
    "loud",
    "import sys, warnings\nwarnings.warn('w')\nprint('e', file=sys.stderr)\nprint('x' * 10**7)\n"
    "for i in range(20_000): print(i)\nfrom IPython.display import HTML, display\n"
    "for i in range(2_000): display(HTML(f'<b>{i}</b>'))",
    FULL,
    answer=None,
)
cell("stray errors", "1 / 0", FULL, answer=None)
cell("a syntax error above", "def oops(:", FULL, answer=None)
cell("asks for input", "input('name? ')", FULL, answer=None)
cell("exits above", "exit()", FULL, answer=None)
cell("raises SystemExit", "raise SystemExit", FULL, answer=None)
cell("dies above", "import os\nos._exit(1)", FULL, answer=None)
cell("slow last line", "y = 1\nwhile True: pass", FULL, answer=None, at="row_linear-test")

# --- answers that break things ------------------------------------------------------------------

body("wrong", "return x_shard @ w_shard + b", says="Seen: every value differs")
body("ends the kernel", "import os; os._exit(7)", says="exit code 7")
body("kills itself", "import os; os.kill(os.getpid(), 9)", says="SIGKILL")
body("calls exit", "exit()")
body("raises KeyboardInterrupt", "raise KeyboardInterrupt")
body("raises a bare BaseException", "raise BaseException('no')", says="BaseException")
body("loops", "while True: pass", says="too long")
body(
    "loops and swallows interrupts",
    "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    says="too long",
)
body(
    "loops deaf to signals",
    "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 32))\nwhile True: pass",
    says="too long",
)
body("sleeps", "import time; time.sleep(10**6)", says="too long")
body("recurses", "return row_linear(comm, x_shard, w_shard, b, g=g)", says="RecursionError")
body(
    "recurses without a limit",
    "import sys; sys.setrecursionlimit(10**9)\ndef f(): return f()\nreturn f()",
)
body("takes all memory", "return [bytearray(2**30) for _ in range(100)]", says="MemoryError")
body(
    "takes memory to share",
    "import mmap; return [mmap.mmap(-1, 2**30).write(bytes(2**30)) for _ in range(9)]",
    says="OSError",
)
body(
    "starts threads without end",
    "import threading, time\n"
    "while True: threading.Thread(target=time.sleep, args=(99,), daemon=True).start()",
    says="RuntimeError",
)
body("opens files without end", "fs = [open(str(i), 'w') for i in range(10**5)]", says="OSError")
body("prints without end", "while True: print('x' * 10**6)")
body("asks for input in a test", "input()")
body("returns too much", "return [0] * 10**5", says="too many values")
body("returns too deep", "a = []\nfor _ in range(100): a = [a]\nreturn a", says="too deeply")
body("returns deeper than a stack", "a = []\nfor _ in range(10**5): a = [a]\nreturn a")
body("returns a large tensor", "return x_shard.new_zeros(5 * 10**6)")
body("returns nothing", "return None", says="None where a tensor")
body("returns itself", "a = []; a.append(a); return a")

# --- files, disks, processes --------------------------------------------------------------------

cell(
    "fills the disk",
    "for i in range(99):\n    with open(str(i), 'wb') as f: f.write(bytes(100 * 2**20))",
    FULL,
    answer=None,
)
cell(
    "fills the disk with files that have no name",
    "import os\nfs = []\nfor i in range(99):\n    fs.append(open('f', 'wb')); os.unlink('f')\n"
    "    fs[-1].write(bytes(100 * 2**20)); fs[-1].flush()\n",
    FULL,
    answer=None,
)
cell(
    "leaves a deep and locked folder",
    "import os\nfor i in range(1500): os.mkdir('d'); os.chdir('d')\nos.mkdir('locked', 0)",
    FULL,
    answer=None,
)
for deed in (
    "import subprocess; subprocess.run(['sleep', '999'])",
    "import os; os.fork()",
    "import os; os.execv('/bin/sleep', ['sleep', '999'])",
    "import multiprocessing as m; m.get_context('fork').Process(target=print).start()",
    "import urllib.request as u; u.urlopen('http://127.0.0.1:80').read()",
    "import distgrade.exercise",
    f"open('../../../source/{LAB}/{LAB}.ipynb').read()",
    "import sqlite3; sqlite3.connect('../../../gradebook.db').execute('update grade set x = 1')",
    "import os; open(f'/proc/{os.getppid()}/environ').read()",
):
    cell(f"tries {deed.split('; ')[-1][:40]}", f"{deed}\nrow_linear = None")

# --- what runs the tests ------------------------------------------------------------------------

cell("cells become pass", "get_ipython().input_transformers_post.append(lambda lines: ['pass'])")
cell(
    "asserts are taken out",
    "import ast\nclass T(ast.NodeTransformer):\n"
    "    def visit_Assert(self, node): return ast.Pass()\n"
    "get_ipython().ast_transformers.append(T())",
)
cell(
    "run_cell does nothing",
    "class Done:\n    success, error_before_exec, error_in_exec = True, None, None\n"
    "    result, execution_count = None, 1\n    def raise_error(self): pass\n"
    "shell = get_ipython()\nasync def run(*a, **k): return Done()\n"
    "shell.run_cell_async, shell.run_cell = run, lambda *a, **k: Done()\n"
    "shell.should_run_async = lambda *a, **k: False",
    says="nothing came back",
)
cell(
    "the kernel says ok to everything",
    "async def done(*a, **k): return {'status': 'ok', 'execution_count': 1, 'payload': [],\n"
    "                                'user_expressions': {}}\n"
    "get_ipython().kernel.do_execute = done",
    says="nothing came back",
)
cell("exec does nothing", "import builtins\nbuiltins.exec = lambda *a: None")
cell("compile gives pass", "import builtins\nc = builtins.compile\n"
     "builtins.compile = lambda s, *a, **k: c('pass', *a, **k)")  # fmt: skip
cell("an audit hook forbids to run", "import sys\ndef hook(event, args):\n"
     "    if event == 'exec': raise RuntimeError\nsys.addaudithook(hook)")  # fmt: skip
cell("all names are cleared", "globals().clear()", at="row_linear-test", answer=None)
cell("full marks are displayed", "get_ipython().displayhook(4.0)\nfrom distlab import notebook\n"
     "notebook.check = print")  # fmt: skip
cell(
    "an early answer is sent",
    "import threading, time\nk = get_ipython().kernel\ndef lie():\n    for _ in range(300):\n"
    "        p = k.get_parent()\n"
    "        k.session.send(k.iopub_socket, 'status', {'execution_state': 'idle'}, parent=p)\n"
    "        s = getattr(k, 'shell_stream', None) or k.shell_streams[0]\n"
    "        s.send_multipart(k.session.serialize(k.session.msg('execute_reply',\n"
    "            {'status': 'ok', 'payload': [], 'user_expressions': {}}, parent=p)))\n"
    "        time.sleep(0.01)\nthreading.Thread(target=lie, daemon=True).start()",
)
cell("the output thread is stopped", "get_ipython().kernel.iopub_thread.stop()", answer=None)
cell("the output socket is closed", "get_ipython().kernel.iopub_socket.close()", answer=None)
cell(
    "a message of many values",
    "k = get_ipython().kernel\nbig = b'{\"data\": [' + b'{},' * 10**7 + b'{}]}'\n"
    "k.session.send(k.iopub_socket, 'display_data', big, parent=k.get_parent())",
    FULL,
    answer=None,
)
cell(
    "messages without end",
    "k = get_ipython().kernel\n"
    "while True: k.session.send(k.iopub_socket, 'stream', b'\"' + b'x' * 6 * 10**7 + b'\"',\n"
    "                           parent=k.get_parent())",
    FULL,
    answer=None,
)

# --- what is observed ---------------------------------------------------------------------------

FIND = """
import gc, json, sys
def harness():
    for thing in gc.get_objects():
        if type(thing) is dict and 'PAYLOAD' in thing and 'SPACE' in thing: return thing
    return {}
def payload(): return json.loads(harness().get('PAYLOAD', '{}'))
"""
MIME = "'application/vnd.distgrade+json'"
FORGE = f"""
def forge(nonce, seeds):
    from IPython.display import publish_display_data
    for case in range(9):
        for seed in seeds:
            publish_display_data({{{MIME}: {{'nonce': nonce, 'exercise': 'lab03.row_linear',
                'case': case, 'seed': seed, 'tree': None, 'b64': 'CAAAAAAAAAB7fSAgICAgIA=='}}}})
"""
OWN = "p = payload()\nif p: forge(p['nonce'], p['seeds'])\n"
CATCH = "try: return x_shard @ w_shard + b\nfinally:\n    "
cell("records with another nonce", FORGE + "forge('0' * 32, [0])")
cell(
    "records with another nonce, from a thread",
    FORGE + "import threading, time\ndef on():\n    for _ in range(50):\n        forge('0', [0])\n"
    "        time.sleep(0.02)\nthreading.Thread(target=on, daemon=True).start()",
)
answer("records with the nonce", FIND + FORGE + HEAD + OWN.replace("\n", "\n    ") + "return b",
       says="more than one answer")  # fmt: skip
cell(
    "records with the nonce, from a thread",
    FIND + FORGE + "import threading, time\ndef on():\n    for _ in range(30):\n"
    "        p = payload()\n        if p.get('names') == ['row_linear']:\n"
    "            forge(p['nonce'], p['seeds']); return\n        time.sleep(0.05)\n"
    "threading.Thread(target=on, daemon=True).start()",
)
cell(
    "records at exit",
    FIND + FORGE + "import atexit\natexit.register(lambda: forge(payload().get('nonce'), [0]))\n",
)
cell(
    "records behind the harness",
    FIND + FORGE + "shell = get_ipython()\ndef after(*a):\n    for n in seen: forge(n, [0, 1])\n"
    "seen = []\nshell.events.register('post_execute', after)\n"
    "shell.events.register('post_run_cell', after)",
)


def swap(rule):
    """A publisher that changes records: `rule` is code over `r`, the record."""
    return (
        "p = get_ipython().display_pub\nplain = p.publish\ndef publish(data, *a, **k):\n"
        f"    r = data.get({MIME}) if isinstance(data, dict) else None\n    if r:\n        {rule}\n"
        "    return plain(data, *a, **k)\np.publish = publish"
    )


def frozen(rule):
    """The right answers of the public reference file, put in by a rule over `r` and `table`."""
    room = load(ROW)
    table = []
    for right in references.read(room):
        tree, data = encode(right)
        table.append([tree, base64.b64encode(data).decode()])
    return f"table = __import__('json').loads({json.dumps(json.dumps(table))})\n" + swap(rule)


PUT = "t = table[r['case']]; r.update(tree=t[0], b64=t[1])"


def from_table(name, rule):
    def make():
        nb = solved(row_linear=WRONG)
        nb.cells.insert(place(nb, "row_linear"), code(frozen(rule)))
        return nb

    beast(name, make)


from_table("frozen answers for the frozen seed", f"if r['seed'] == 0: {PUT}")
from_table("frozen answers for every seed", PUT)
from_table("frozen answers under another seed", f"{PUT}; r['seed'] = 0")
cell("records say none of it was an answer", swap("r['error'] = {'kind': 'NotImplementedError'}"))
cell("records say the grader failed", swap("r['error'] = {'kind': 'grader'}"),
     says="the inputs can't be made")  # fmt: skip
cell("records are dropped", swap("return"), says="nothing came back")
cell("records are doubled", swap("plain(data)"), says="more than one answer")
cell("records hold no tree", swap("r.pop('tree', None)"), says="can't be read")
cell("records hold damaged tensors", swap("r['b64'] = r.get('b64', '')[:-8]"), says="can't be read")
cell("records hold zeros", swap("r['tree'] = {'int': '0'}"))
cell("records hold keys that collide", swap(
     "r['tree'] = {'dict': [[{'int': str(i * (2**61 - 1))}, None] for i in range(40_000)]}"
     ), says="can't be read")  # fmt: skip
cell("records hold a huge integer", swap("r['tree'] = {'int': '9' * 10**6}"), says="can't be read")
cell("base64 is another", "import base64\nbase64.b64encode = lambda data: b'AAAA'", says="can't be")
cell("json is another", "import json\njson.loads = json.dumps = lambda *a, **k: {}")
cell(
    "a module is another",
    "import sys, types\nfor name in ('base64', 'ast', 'json', 'struct', 'warnings'):\n"
    "    sys.modules[name] = types.ModuleType(name)",
)
cell(
    "every case is that of one rank",
    "import ast\nplain = ast.literal_eval\n"
    "ast.literal_eval = lambda t: plain(t) | {'n': 1, 'widths': (4,), 'batch': (3,), 'd_out': 2}",
)
cell(
    "the inputs are always the frozen ones",
    "from distlab import seeds\nplain = seeds.seed_of\n"
    "seeds.seed_of = lambda *key: plain(*(0 if type(k) is int else k for k in key))",
    answer=None,
    says="alue",
)
cell(
    "the inputs are ones",
    "from distlab import seeds\nimport torch\n"
    "seeds.integers = lambda shape, *a, **k: torch.ones(shape, dtype=torch.float64)",
    answer=None,
)
cell("the inputs can't be made", "from distlab import seeds\nseeds.integers = None", answer=None,
     says="the inputs can't be made")  # fmt: skip
cell(
    "torch compares as it is told",
    "import torch\ntorch.equal = torch.allclose = torch.is_tensor = lambda *a, **k: True\n"
    "torch.testing.assert_close = lambda *a, **k: None\n"
    "torch.Tensor.__eq__ = lambda *a: True",
)
cell("tensors give other bytes", "import numpy, torch\n"
     "torch.Tensor.numpy = lambda self, *a: numpy.zeros(10**4, dtype='u1')")  # fmt: skip
cell("runs are another's", "import distlab\ndistlab.run = lambda *a, **k: None")
cell("the harness's functions are changed", FIND + "import types\nclass Evil(dict): pass\n"
     "def on(frame, event, arg):\n    if frame.f_code.co_name == 'observed':\n"
     "        frame.f_globals['observed'] = lambda *a: {}\n    return None\n"
     "sys.setprofile(on)")  # fmt: skip
SUBCLASS = f"""
import torch
class Agrees(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func.__name__ in ('eq', 'equal', 'allclose', 'isclose'): return torch.tensor(True)
        return super().__torch_function__(func, types, args, kwargs or {{}})
    def __eq__(self, other): return True
    def __reduce__(self): return (print, ('reduced',))
{HEAD}return (x_shard @ w_shard + b).as_subclass(Agrees)
"""
answer("a tensor that agrees", SUBCLASS)
EVIL = f"""
import torch
class Evil:
    __class__ = torch.Tensor
    def __eq__(self, other): return True
    def __getattr__(self, name): return self
    def __call__(self, *a, **k): return self
    def __reduce__(self): return (eval, ("__import__('os')._exit(0)",))
    def __bool__(self): return True
{HEAD}return Evil()
"""
answer("an object that is equal to all", EVIL)
answer("a list that lies", f"class Lies(list):\n    def __len__(self): return 3\n"
       f"    def __iter__(self): return iter([])\n{HEAD}return Lies([1])")  # fmt: skip
answer("an error that breaks", "class E(Exception):\n    def __str__(self): raise self\n"
       "    __class__ = property(lambda self: 1 / 0)\n" + HEAD + "raise E")  # fmt: skip
body(
    "the inputs are changed",
    "y = g.apply(x_shard @ w_shard, comm) + b\nx_shard.data.zero_()\nreturn y",
    says="afterwards",
)
answer("not a function", "row_linear = 3", says="should be a function")
answer("a forbidden class of functions", "row_linear = print")
body("the caller's names are looked up",
     "import sys\nf = sys._getframe()\nwhile f:\n    if 'oracle' in f.f_globals: return 'found'\n"
     "    f = f.f_back\nreturn x_shard @ w_shard")  # fmt: skip

# --- what is not proved: *how* values were reached, for whoever forges it -----------------------

COSTLY = HEAD + (
    "import torch\n    class Gather(torch.autograd.Function):\n"
    "        @staticmethod\n        def forward(ctx, y, comm):\n"
    "            return comm.all_gather(y.unsqueeze(0)).sum(dim=0)\n"
    "        @staticmethod\n        def backward(ctx, grad): return grad, None\n"
    "    return Gather.apply(x_shard @ w_shard, comm) + b"
)
answer("sends too much", COSTLY, {F: 4, ROW: 3}, "times the bytes that are needed")
cell(
    "sends too much, and a ledger that says so is gone",
    "from distlab.ledger import Ledger\nLedger.ring_bytes = lambda self, **k: 0",
    FULL,
    answer=COSTLY,
    limit="ledger",
)

# --- the notebook itself ------------------------------------------------------------------------


def tagged(nb, **changes):
    for each in nb.cells:
        if "nbgrader" in each.metadata:
            each.metadata.nbgrader.update(changes)


@edited("test cells skipped by tag, nothing written", NONE, f_and_g="pass", row_linear="pass")
def _(nb):
    for each in nb.cells:
        each.metadata["tags"] = ["skip-execution"]


@edited("solution cells tagged as pictures")
def _(nb):
    for each in nb.cells:
        each.metadata["tags"] = ["look", "real"]


@edited("a schema of the future")
def _(nb):
    tagged(nb, schema_version=99)


@edited("nothing is graded")
def _(nb):
    tagged(nb, grade=False, locked=False)


@edited("worth a thousand", ONLY_F, row_linear=WRONG)
def _(nb):
    tagged(nb, points=1000)


@edited("tests are solutions", ONLY_F, row_linear=WRONG)
def _(nb):
    tagged(nb, solution=True)
    nb.cells[place(nb, "row_linear-test")].source = "4.0"


@edited("a test replaced by pass", ONLY_F, "a locked cell was changed", row_linear=WRONG)
def _(nb):
    cell = clone(nb.cells[place(nb, "row_linear-test")])
    cell.source, cell.id = "pass", "another"
    nb.cells.append(cell)


@edited("test cells deleted")
def _(nb):
    nb.cells = [c for c in nb.cells if not c.id.endswith("-test")]


@edited("a solution deleted", ONLY_F, "not in the submission")
def _(nb):
    del nb.cells[place(nb, "row_linear")]


@edited("everything twice")
def _(nb):
    nb.cells += [clone(c) for c in nb.cells]


@edited("a solution copied below, wrong", ONLY_F, "was copied or split")
def _(nb):
    copied = clone(nb.cells[place(nb, "row_linear")])
    copied.source, copied.id = WRONG, "copied"
    nb.cells.insert(place(nb, "row_linear") + 1, copied)


@edited("a solution split in two", FULL, "was copied or split")
def _(nb):
    at = place(nb, "f_and_g")
    first, second = nb.cells[at].source.split("class ReduceFromRanks", 1)
    rest = clone(nb.cells[at])
    nb.cells[at].source, rest.source = first, "class ReduceFromRanks" + second
    rest.id = "rest"
    nb.cells.insert(at + 1, rest)


@edited("upside down")
def _(nb):
    nb.cells = nb.cells[::-1]


@edited("one cell's answer in the other's", {F: 0, ROW: 4}, "4 of 4")
def _(nb):
    one, two = (nb.cells[place(nb, name)] for name in KEPT)
    one.source, two.source = two.source, one.source


@edited("an id of every cell, and all the same")
def _(nb):
    for each in nb.cells:
        each["id"] = "same"


@edited("another kernel")
def _(nb):
    nb.metadata["kernelspec"] = {"name": "bash", "language": "bash"}
    nb.metadata["language_info"] = {"name": "<script>", "pygments_lexer": "<script>"}


@edited("of an edition that never was", FULL)
def _(nb):
    nb.metadata["distlab"] = {"lab": LAB, "release": "f" * 64, "notes": [["row_linear", "<b>"]]}


@edited("metadata that is none")
def _(nb):
    nb.metadata["distlab"] = nb.metadata["kernelspec"] = ["?"]
    for each in nb.cells:
        each.metadata["tags"] = {"a": 1}
        each.metadata["distlab"] = {"student": True}


@edited("solution cells in Markdown")
def _(nb):
    nb.cells[place(nb, "row_linear")].cell_type = "markdown"


@edited("ten thousand cells", FULL, "too many added cells")
def _(nb):
    nb.cells[1:1] = [code("pass") for _ in range(10_000)]


@edited("no cell", NONE)
def _(nb):
    nb.cells = []


@edited("another lab's notebook", NONE)
def _(nb):
    return read_notebook(next((ROOT / "source").glob("lab00-*/*.ipynb")))


# --- pages: nothing of these may reach one as more than text --------------------------------------

SCRIPT = "<script>steal()</script>"
PAGE = f"""
from IPython.display import HTML, SVG, Javascript, Markdown, Latex, display
display(HTML({SCRIPT!r}), Javascript('steal()'), Markdown({SCRIPT!r}), Latex({SCRIPT!r}))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg" onload="steal()"></svg>'))
display({{'image/png': '"><script>steal()</script>', 'text/plain': {SCRIPT!r}}}, raw=True)
display({{'image/svg+xml': '<svg onload=steal()>', 'application/javascript': 'steal()'}}, raw=True)
display({{'application/vnd.jupyter.widget-view+json': {{'model_id': 'x'}}}}, raw=True)
print({SCRIPT!r}, '\\x1b[31m' + {SCRIPT!r} + '\\x1b[0m\\x1b]8;;javascript:steal()\\x07', '\\ud800')
class E(Exception): pass
E.__name__ = {SCRIPT!r}
raise E({SCRIPT!r})
"""
cell("a page full of scripts", PAGE, FULL, answer=None)
body("an error full of scripts", f"raise ValueError('<img src=x onerror=steal()>' + {SCRIPT!r})",
     says="ValueError")  # fmt: skip
WRITTEN = f"""
# An answer {SCRIPT}
<img src=x onerror="steal()"> <svg onload=steal()></svg> <iframe srcdoc="{SCRIPT}"></iframe>
[a](javascript:steal()) <a href="data:text/html,{SCRIPT}">b</a>
$$x < y \\href{{javascript:steal()}}{{z}}$$
<style>body {{ display: none }}</style> <form action="//x"><button>go</button></form>
<math><mtext><script>steal()</script></mtext></math> <div onmouseover="steal()" id="top">c</div>

```python
if a < b: print("{SCRIPT}")
```
![d](attachment:d.png) ![e](attachment:e.svg)
"""
PIXEL = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
)


@edited("a written answer full of scripts")
def written(nb):
    own = nb.cells[place(nb, "written")]
    own.source = WRITTEN
    own["attachments"] = nbformat.from_dict(
        {
            "d.png": {"image/png": PIXEL, "text/html": SCRIPT},
            "e.svg": {"image/svg+xml": SCRIPT},
            '"><script>steal()</script>': {'image/png"><script>steal()</script>': PIXEL},
        }
    )


KEEPS = FIND + "kept = []\ndef row_linear(*a, **k):\n    kept.append(harness().get('PAYLOAD'))"


@edited("what the harness holds is kept and shown", ONLY_F, row_linear=KEEPS)
def kept(nb):
    nb.cells.insert(place(nb, "row_linear-test"), code("print(kept, harness())"))
    nb.cells.append(code("print(kept)\nraise ValueError(str(kept))"))


# --- files that are no notebook -------------------------------------------------------------------

FILES = {
    "nothing in it": (b"", "not valid JSON"),
    "half a file": (b'{"cells": [', "not valid JSON"),
    "not JSON": (b"{oops", "not valid JSON"),
    "JSON, but no notebook": (b"[1, 2]", "not a notebook"),
    "of another century": (b'{"nbformat": 99, "cells": []}', "format 99"),
    "not UTF-8": ("{'cells': 'é'}".encode("latin-1"), "not UTF-8"),
    "a program": (b"\x7fELF\x02\x01\x01\x00\xff", "not UTF-8"),
    "nested without end": (b'{"cells":' + b"[" * 10**6, "nested too deeply"),
    "too large": (b" " * (33 * 2**20), "larger than"),
}
