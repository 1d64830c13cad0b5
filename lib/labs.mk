# What students need of `make`; the Makefile of the folder above includes it. Nothing has to be
# activated. OPEN=no keeps `make lab` from opening a browser.

.DEFAULT_GOAL := help
.SUFFIXES:
MAKEFLAGS += --no-builtin-rules --no-print-directory

# .venv comes first on PATH for everything but its own set-up.
OUTSIDE := $(PATH)
unexport PYTHONHOME PYTHONPATH
export PATH := $(CURDIR)/.venv/bin:$(OUTSIDE)

# Any Python from 3.8 can start the set-up, which then looks for Python 3.11 by itself. Each name is
# tried by running it: a name on PATH may be a shim with nothing behind it.
START = PATH='$(OUTSIDE)'; for python in python3.11 python3 python /usr/bin/python3; do \
	if $$python -c 'import sys; sys.exit(sys.version_info < (3, 8))' >/dev/null 2>&1; then \
	exec $$python lib/bootstrap.py $(1); fi; done; \
	echo "Python 3.11 was not found; install it (Debian/Ubuntu: sudo apt install python3.11-venv," \
	"macOS: brew install python@3.11) and start again." >&2; exit 1

.PHONY: help setup lab reset doctor repair

LISTED = lib/labs.mk $(filter-out lib/labs.mk,$(MAKEFILE_LIST))

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-15s %s\n", $$1, $$2}' $(LISTED)

setup: ## build the environment in .venv (one or two minutes), or bring it up to date
	@$(call START,setup)

lab: ## open the labs in JupyterLab, in work/: your own copy
	@$(call START,lab)

reset: ## take a fresh copy of one lab (LAB=lab03); yours is kept beside it
	@$(call START,reset '$(LAB)')

doctor: ## say what is wrong with this installation, and what mends it
	@$(call START,doctor)

repair: ## look at every file of .venv, and install again what is damaged
	@$(call START,repair)
