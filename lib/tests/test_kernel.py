"""In a real notebook kernel: cells are named in errors, prints are labelled, interrupts work."""

import time

import pytest
from jupyter_client.manager import start_new_kernel

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("kernel")]

SETUP = "import torch\nfrom distlab import run\nX = torch.ones(2)"
DEADLOCK = """def forgets(comm):
    if comm.rank == 1:
        return
    comm.all_reduce(X)

run(forgets, 3)"""
RAISES = """def broken(comm):
    comm.barrier()
    return [][comm.rank]

run(broken, 2)"""
PRINTS = """def speaks(comm):
    print("I am", comm.rank)

run(speaks, 2).values"""
SPINS = """def spins(comm):
    while True:
        comm.barrier()

run(spins, 2, timeout=60)"""
WORKS = "print(run(lambda comm: comm.all_reduce(X)[0].item(), 2).values)"


@pytest.fixture(scope="module")
def kernel():
    manager, client = start_new_kernel(kernel_name="python3")
    yield manager, client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def execute(client, code, act=None):
    """Runs a cell; returns (what it printed, its traceback without colours)."""
    import re

    printed, errors = [], []

    def hook(message):
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            printed.append(message["content"]["text"])
        if message["msg_type"] == "error":
            errors.extend(message["content"]["traceback"])
        if (
            message["msg_type"] == "status"
            and act
            and message["content"] == {"execution_state": "busy"}
        ):
            act()

    client.execute_interactive(code, output_hook=hook, timeout=90)
    return "".join(printed), re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(errors))


def test_errors_name_cells_and_lines(kernel):
    _, client = kernel
    execute(client, SETUP)
    _, text = execute(client, DEADLOCK)
    assert "DeadlockError" in text
    assert "ranks 0, 2 wait in all_reduce #1 (sum, float32[2])" in text
    assert "at cell In[2], line 4 in forgets: comm.all_reduce(X)" in text
    assert "/distlab/" not in text

    _, text = execute(client, RAISES)
    assert "IndexError" in text
    assert "return [][comm.rank]" in text
    assert "raised on rank" in text
    assert "simulator.py" not in text  # our own frames stay hidden

    out, text = execute(client, PRINTS)
    assert text == ""
    assert sorted(out.splitlines()) == ["[rank 0] I am 0", "[rank 1] I am 1"]


def test_an_order_that_can_not_run_is_shown_at_the_callers_line(kernel):
    _, client = kernel
    execute(client, "from distlab import schedule")
    _, text = execute(client, "orders = [[('B', 0), ('F', 0)]]\nschedule.simulate(orders)")
    assert text.rstrip().endswith("OrderError: Rank 0 runs B0 before F0, which it needs.")
    assert "schedule.simulate(orders)" in text
    assert "replay.py" not in text


def test_an_unwritten_answer_is_one_calm_line_without_ranks_too(kernel):
    _, client = kernel
    execute(client, SETUP)
    execute(client, "def count(n):\n    raise NotImplementedError('This part is not written yet.')")
    _, text = execute(client, "count(3)")
    assert text == "NotImplementedError: count is not written yet (line 2 of its cell)."
    _, text = execute(client, "raise NotImplementedError('addmm')")
    assert "NotImplementedError: addmm" in text
    assert "Traceback" in text


def test_real_processes_behave_the_same_in_a_notebook(kernel):
    manager, client = kernel
    execute(client, SETUP)

    _, text = execute(client, DEADLOCK.replace("forgets, 3", "forgets, 3, engine='gloo'"))
    assert "DeadlockError" in text
    assert "line 4 in forgets: comm.all_reduce(X)" in text
    assert "at cell In[" in text

    _, text = execute(client, RAISES.replace("broken, 2", "broken, 2, engine='gloo'"))
    assert "IndexError" in text
    assert "return [][comm.rank]" in text
    assert "raised on rank" in text
    assert "/distlab/" not in text  # neither in the caller's traceback nor in the rank's

    out, text = execute(client, PRINTS.replace("speaks, 2", "speaks, 2, engine='gloo'"))
    assert text == ""
    assert sorted(out.splitlines()) == ["[rank 0] I am 0", "[rank 1] I am 1"]

    fired = []

    def interrupt_once():
        if not fired:
            fired.append(time.sleep(2.0) or manager.interrupt_kernel())

    spins = SPINS.replace("timeout=60", "timeout=60, engine='gloo'")
    _, text = execute(client, spins, interrupt_once)
    assert "KeyboardInterrupt" in text
    out, text = execute(client, WORKS.replace(", 2)", ", 2, engine='gloo')"))
    assert (out, text) == ("[2.0, 2.0]\n", "")


def test_an_interrupt_stops_the_ranks_and_leaves_the_kernel_usable(kernel):
    manager, client = kernel
    execute(client, SETUP)
    fired = []

    def interrupt_once():
        if not fired:
            fired.append(time.sleep(1.0) or manager.interrupt_kernel())

    _, text = execute(client, SPINS, interrupt_once)
    assert "KeyboardInterrupt" in text
    out, text = execute(client, WORKS)
    assert (out, text) == ("[2.0, 2.0]\n", "")
