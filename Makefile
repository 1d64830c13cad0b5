# What needs the whole repository; what students need stands in lib/labs.mk. `make` alone lists both.
# PYTEST_ARGS="-k name -x" is given to pytest.

include lib/labs.mk

PYTEST = python -m pytest -n 2 --dist loadgroup

.PHONY: test check lint site text release student-bundle refs canon class-demo solutions bench clean

test: setup lint ## run every test
	$(PYTEST) $(PYTEST_ARGS)

check: setup ## run the quick tests (under two minutes)
	$(PYTEST) -m "not slow" $(PYTEST_ARGS)

lint: setup ## look for mistakes and untidy layout in the code
	@ruff check .
	@ruff format --check .

site: setup ## build the chapters and labs as pages, in build/site
	@python course/site/build.py

text: setup ## write catalogues of all text for translators, in build/text
	@python course/site/text.py

release: setup ## make release/ from source/ (what students get)
	@distgrade release

student-bundle: release ## pack what students get, and no more, in build/student-bundle
	@python course/bundle/pack.py

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
