# Every command works without activating anything. `make` alone prints this list.
# PYTEST_ARGS="-k name -x" is given to pytest; OPEN=no keeps `make lab` from opening a browser.

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

PYTEST = python -m pytest -n 2 --dist loadgroup

.PHONY: help setup lab reset test check lint release refs canon class-demo solutions bench clean

help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-11s %s\n", $$1, $$2}' Makefile

setup: ## build the environment in .venv (one or two minutes), or bring it up to date
	@$(call START,setup)

lab: ## open the labs in JupyterLab, in work/: your own copy
	@$(call START,lab)

reset: ## take a fresh copy of one lab (LAB=lab03); yours is kept beside it
	@$(call START,reset '$(LAB)')

test: setup lint ## run every test
	$(PYTEST) $(PYTEST_ARGS)

check: setup ## run the quick tests (under two minutes)
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

lint: setup ## look for mistakes and untidy layout in the code
	@ruff check .
	@ruff format --check .

site: setup ## build the chapters and labs as pages, in build/site
	@python course/site/build.py

release: setup ## make release/ from source/ (what students get)
	@distgrade release

refs: setup ## write the frozen reference values of every exercise
	@distgrade refs

canon: setup ## put the notebooks of source/ into their canonical form
	@distgrade canon

class-demo: setup ## make a class of sample submissions, grade it, show the scores with reasons
	@distgrade class-demo

solutions: setup ## make a lab's solved notebook for students, after its deadline (LAB=lab03)
	@distgrade solutions '$(LAB)'

bench: setup ## run every benchmark
	@set -e; for file in lib/benchmarks/bench_*.py autograder/benchmarks/bench_*.py; do \
		[ -f "$$file" ] || continue; echo "== $$file"; python "$$file"; done

clean: ## remove .venv and what can be made again (work/, marks and submissions stay)
	rm -rf .venv build .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name '*.egg-info' -prune -exec rm -rf {} +
