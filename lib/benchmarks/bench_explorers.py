"""Times one redraw of each explorer, of those that a kernel draws beside matplotlib's same picture.

Aim: 20 ms at most, 100 ms for thousands of bars or layouts, on a quiet machine; 100 ms is what a
hand on a slider notices. Those that run in the page are timed under node: no browser, no layout.
"""

import json
import shutil
import statistics
import subprocess
import time

from distlab import plot
from distlab.explorers import buckets, frame, layouts, partition
from distlab.explorers.memory import memory_data
from distlab.explorers.schedule import schedule_data
from distlab.explorers.web import MODULES
from distlab.timeline import Event, Timeline

REPEATS = 15
IN_THE_PAGE = """
import { view } from %s;
const { data, chosen } = JSON.parse(await new Response(process.stdin).text());
const settings = { ...data.start, ...chosen };
const taken = [];
let length = 0;
for (let i = 0; i < %d; i++) {
  const begin = performance.now();
  length = view(data, settings).svg.length;
  taken.push(performance.now() - begin);
}
taken.sort((a, b) => a - b);
console.log(`${taken[taken.length >> 1].toFixed(2)} ms, ${(length / 1e3).toFixed(1)} kB`);
"""


def seconds(work) -> float:
    """Returns the median time of one call, after one to warm up."""
    work()
    taken = []
    for _ in range(REPEATS):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def step_by_matplotlib(chosen: buckets.BucketSettings) -> bytes:
    numbers = buckets.bucket_numbers(chosen)
    events = [Event(0, "compute", "forward", "compute", 0.0, numbers.forward_s, 0, "activations")]
    begin_s = numbers.forward_s
    for i, bucket in enumerate(numbers.buckets):
        events.append(
            Event(0, "compute", f"#{i}", "compute", begin_s, bucket.ready_s, 0, "gradients")
        )
        events.append(Event(0, "comm", f"#{i}", "all_reduce", bucket.start_s, bucket.end_s))
        begin_s = bucket.ready_s
    return plot.timeline(Timeline(events)).png(dpi=100)


def stages_by_matplotlib(chosen: partition.PartitionSettings) -> bytes:
    numbers = partition.partition_numbers(chosen)
    even, best = (
        plot.stage_loads(numbers.layers.times, split.bounds).png(dpi=100)
        for split in (numbers.even, numbers.best)
    )
    return even + best


def layouts_by_matplotlib(chosen: layouts.LayoutSettings) -> bytes:
    numbers = layouts.layout_numbers(chosen)
    ways = (*numbers.fitting, *numbers.too_big)
    points = {way.name: (way.memory_bytes, way.time_s) for way in ways}
    limit = ("GPU", numbers.capacity_bytes)
    scatter = plot.layout_scatter(points, capacity=limit, best=ways[0].name).png(dpi=100)
    return scatter + plot.step_breakdown({"best": numbers.times}).png(dpi=100)


def in_the_page() -> None:
    """Times memory.mjs and schedule.mjs."""
    node = shutil.which("node")
    if node is None:
        print("no node here: memory and schedule, which run in the page, are not timed")
        return
    whole = {"stages": 16, "microbatches": 64}
    cases = (
        ("memory", memory_data(), {}),
        ("memory", memory_data(), {"model": "DeepSeek-V3", "gpus": 2048, "tp": 8, "pp": 32}),
        ("schedule", schedule_data(), {}),
        ("schedule", schedule_data(), whole),
        ("schedule", schedule_data(), whole | {"schedule": "interleaved 1F1B", "chunks": 4}),
    )
    for name, data, chosen in cases:
        program = IN_THE_PAGE % (json.dumps((MODULES / f"{name}.mjs").as_uri()), REPEATS)
        done = subprocess.run(
            [node, "--input-type=module", "-e", program],
            input=json.dumps({"data": data, "chosen": chosen}),
            capture_output=True,
            text=True,
            check=True,
        )
        print(f"{name}, {chosen or 'as it begins'}: {done.stdout.strip()}")


def main() -> None:
    in_the_page()
    cases = (
        ("buckets", buckets.BucketSettings(), buckets.bucket_view, step_by_matplotlib),
        (
            "buckets, 384 of them",
            buckets.BucketSettings(layers=96, params_million=70000),
            buckets.bucket_view,
            step_by_matplotlib,
        ),
        (
            "partition",
            partition.PartitionSettings(),
            partition.partition_view,
            stages_by_matplotlib,
        ),
        (
            "partition, 128 on 16",
            partition.PartitionSettings(
                profile="Llama 3.1 405B", stages=16, microbatches=64, transfer="exposed", cap=0.9
            ),
            partition.partition_view,
            stages_by_matplotlib,
        ),
        (
            "layouts",
            layouts.LayoutSettings(),
            layouts.layout_view,
            layouts_by_matplotlib,
        ),
        (
            "layouts, 16,384 GPUs",
            layouts.LayoutSettings(model="Llama 3.1 405B", gpus=16384, batch=2048, seq=8192),
            layouts.layout_view,
            layouts_by_matplotlib,
        ),
    )
    for name, chosen, view, by_matplotlib in cases:
        ours_s = seconds(lambda chosen=chosen, view=view: frame.page(chosen, view))
        theirs_s = seconds(lambda chosen=chosen, draw=by_matplotlib: draw(chosen))
        kilobytes = len(frame.page(chosen, view)) / 1e3
        print(
            f"{name:22} {ours_s * 1e3:6.2f} ms, {kilobytes:4.1f} kB; "
            f"matplotlib {theirs_s * 1e3:6.1f} ms, {theirs_s / ours_s:5.0f} times as long"
        )


if __name__ == "__main__":
    main()
