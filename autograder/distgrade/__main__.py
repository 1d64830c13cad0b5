"""Starts the command line; where a package lacks, it says so, and `doctor` still looks around."""

import sys


def main() -> None:
    """Runs `distgrade`, or says in one sentence what keeps it from running."""
    if sys.argv[1:] == ["doctor"]:  # it must run where click is what lacks
        from distgrade.doctor import start

        sys.exit(start())
    try:
        from distgrade.cli import main as command
    except ModuleNotFoundError as error:
        sys.exit(
            f"distgrade: the package {error.name} is missing; make setup mends it, "
            "distgrade doctor says what else is wrong."
        )
    command()


if __name__ == "__main__":
    main()
