# The commands everyone runs. Each target makes the environment first when it is missing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
# Threads that wait for each other sleep soon instead of spinning, so that a busy machine does not stall them.
export GOMP_SPINCOUNT ?= 20000
READY  := $(VENV)/.ready
BENCH  := $(VENV)/.bench-ready
# Folders under tests/ with a requirements.txt: tested after the others, each in an environment of its own.
SIDES  := $(patsubst tests/%/requirements.txt,%,$(wildcard tests/*/requirements.txt))
DOCS   := $(VENV)/.docs-ready

# Tests of one file share what they set up, so that a file stays in one process.
PARALLEL ?= -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: demo test check docs dist bench attack clean

demo: $(READY)
	@$(BIN)/rankformer demo

test: $(READY)
	@tools/install-browser
	@# The side environments are made meanwhile: that is mostly waiting for files.
	@set -e; { set -e; for side in $(SIDES); do tools/side-environment $$side; done; } > $(VENV)/.sides 2>&1 & sides=$$!; \
	tools/run-tests $(BIN)/python -m pytest $(PARALLEL); \
	wait $$sides || { cat $(VENV)/.sides; exit 1; }; \
	for side in $(SIDES); do tools/run-tests .venv-$$side/bin/python -m pytest $(PARALLEL) tests/$$side; done

check: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The documentation site, into site/; a warning is an error.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

dist: $(READY)
	rm -rf dist && mkdir dist
	$(BIN)/python -c 'from setuptools import build_meta as make; make.build_sdist("dist"); make.build_wheel("dist")'

bench: $(BENCH)
	$(BIN)/python -m benchmarks $(BENCH_OPTIONS)

attack: $(READY)
	$(BIN)/python -m attack $(ATTACK_OPTIONS)

$(READY): pyproject.toml constraints.txt $(wildcard locks/*/dev.txt)
	@$(PYTHON) -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info[:2] <= (3, 14) else "rankformer needs Python 3.11 to 3.14; found " + sys.version.split()[0] + ". Set one with: make PYTHON=python3.12 ...")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python tools/supply_chain.py install dev
	touch $@

$(BENCH): $(READY)
	$(BIN)/python tools/supply_chain.py install bench
	touch $@

$(DOCS): $(READY)
	$(BIN)/python tools/supply_chain.py install docs
	touch $@

clean:
	rm -rf $(VENV) $(VENV)-* site dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
