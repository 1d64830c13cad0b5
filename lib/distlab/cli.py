"""The command line `distlab`. What can't be answered is one sentence, and exit code 2."""

import difflib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

CAN_T = 2  # also click's own code for options that it can't read

# Options that give an axis of `distlab.layout.Layout` one value.
_FIXED = {
    "tp": "t",
    "pp": "p",
    "dp": "d",
    "cp": "context",
    "chunks": "v",
    "microbatch": "microbatch",
    "sp": "sequence_parallel",
    "recompute": "recompute",
    "zero": "zero",
}


class _Group(click.Group):
    """Names the near match of an unknown command."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and self.get_command(ctx, args[0]) is None:
            near = difflib.get_close_matches(args[0], self.list_commands(ctx), 1)
            hint = f" Did you mean `distlab {near[0]}`?" if near else ""
            ctx.fail(f"There is no command {args[0]!r}.{hint}")
        return super().resolve_command(ctx, args)


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Works out how a large model is trained on many GPUs."""


_POSITIVE = click.IntRange(min=1)
_COUNT = click.IntRange(1, 10**6)  # more has so many divisors that nobody would wait


@main.command()
@click.option("--model", required=True, help="A known model (llama-3.1-405b) or a .json file.")
@click.option("--gpus", required=True, type=_COUNT, help="GPUs of the job.")
@click.option("--gpu", default="h100", show_default=True, help="Kind of GPU.")
@click.option("--batch", required=True, type=_COUNT, help="Sequences of a step, all replicas.")
@click.option("--seq", required=True, type=_POSITIVE, help="Tokens of a sequence.")
@click.option("--node-size", type=_POSITIVE, help="GPUs of a node.  [default: the GPU's machine]")
@click.option("--memory", type=click.FloatRange(min=0, min_open=True), metavar="GB",
              help="What a GPU may hold, in 1e9 bytes.  [default: its memory]")  # fmt: skip
@click.option("--stack", help="Whose constants to use.  [default: the GPU's]")
@click.option("--tp", type=_POSITIVE, help="Only this t: ranks that share a layer's matrices.")
@click.option("--pp", type=_POSITIVE, help="Only this p: stages that share the layers.")
@click.option("--dp", type=_POSITIVE, help="Only this d: replicas that share the batch.")
@click.option("--cp", type=_POSITIVE, help="Only this context: ranks that share a sequence.")
@click.option("--chunks", type=_POSITIVE, help="Only this v: chunks of layers per stage.")
@click.option("--microbatch", type=_POSITIVE, help="Only this many sequences at a time.")
@click.option("--sp/--no-sp", default=None, help="Only with, or without, sequence parallelism.")
@click.option("--recompute", type=click.Choice(["none", "selective", "full"]),
              help="Only this much computed again in backward.")  # fmt: skip
@click.option("--zero", type=click.IntRange(0, 3), help="Only this stage of ZeRO, 0 for none.")
@click.option("--top", default=10, show_default=True, type=_POSITIVE,
              help="How many shapes t×p×d to show, the best of each.")  # fmt: skip
@click.option("--rejected", is_flag=True, help="Show what does not fit as well, each with why.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option("--picture", type=click.Path(dir_okay=False, path_type=Path),
              help="Draw memory against step time into this file (.png, .svg).")  # fmt: skip
def plan(model: str, gpus: int, gpu: str, batch: int, seq: int, **options: Any) -> None:
    """Find the best layout of a training step on a cluster.

    Prices every way to spread MODEL over the GPUs, t ways within its layers, p stages, d replicas,
    and shows those that fit and are fastest, those no other beats in memory and time marked *.

    Example: distlab plan --model llama-3.1-405b --gpus 16384 --gpu h100 --batch 2048 --seq 8192
    """
    if options["as_json"] and options["as_csv"]:
        raise click.UsageError("--json and --csv are two outputs: choose one.")
    if options["picture"] and options["picture"].suffix not in (".png", ".svg"):
        raise click.UsageError(f"--picture draws .png or .svg, not {options['picture'].name}.")
    from distlab.layout import Job
    from distlab.planner import plan as search
    from distlab.planner.names import find_machine, find_model, find_stack

    try:
        machine = find_machine(gpu)
        if options["node_size"]:
            machine = replace(machine, gpus_per_node=options["node_size"])
        job = Job(model=find_model(model), batch=batch, seq=seq, gpus=gpus, cluster=machine)
        found = search(
            job,
            find_stack(options["stack"]) if options["stack"] else None,
            fixed={axis: options[o] for o, axis in _FIXED.items() if options[o] is not None},
            limit_bytes=options["memory"] and options["memory"] * 1e9,
        )
        _show(found, options)
    except ValueError as error:
        _refuse(f"{error}")
    except OSError as error:
        _refuse(f"{error.filename} can't be written: {error.strerror}.")


def _refuse(sentence: str) -> None:
    click.echo(f"distlab plan: {sentence}", err=True)
    sys.exit(CAN_T)


def _show(found: Any, options: dict[str, Any]) -> None:
    from distlab.planner.table import notes, rejected

    _ = found.best  # nothing is printed before it is known that there is an answer
    if options["picture"]:
        found.picture().save(options["picture"])
    if options["as_json"]:
        click.echo(found.to_json(options["top"]))
    elif options["as_csv"]:
        click.echo(found.to_csv(options["top"]), nl=False)
    else:
        from rich.console import Console

        console = Console()
        console.print(found.table(options["top"]))
        for line in notes(found):
            console.print(line, highlight=False, markup=False)
        if options["rejected"]:
            console.print(rejected(found))


if __name__ == "__main__":
    main()
