"""Writes the start page of a work folder: `python -m distlab.learn work`, as `make lab` does."""

import sys
from pathlib import Path

from distlab.learn.page import NAME, write_page

if __name__ == "__main__":
    aside = write_page(Path(sys.argv[1]))
    if aside:
        print(f"Your own {NAME} is now {aside.name}.")
