# One command each, on a bare machine with Python 3.11 and make: every target makes .venv and installs what it needs.
# Versions come from constraints.txt. `make PYTHON=python3.12 …` takes another interpreter.

PYTHON ?= python3.11
BIN := .venv/bin
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt

# pip would compile on one core, and 2.5 million lines that nothing here imports as well. py312_*.py is for Python 3.12.
COMPILE := -m compileall -qq -j 0 -x '/tests/|/transformers/models/|/py312_' .venv/lib

# The extras of pyproject.toml that each target needs; setup takes them all.
DEMO := report,train
TEST := test
LINT := test,lint
BENCH := demo,files,report
DOCS := docs

# Written byte code makes every later import about three times as fast; some machines switch it off.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.NOTPARALLEL:  # two pips in one environment undo each other's work
.PHONY: help setup demo test campaign lint bench stability docs wheel check-wheel clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 14

setup: .venv/.has-dev  ## everything a developer needs, in .venv
	@touch $(addprefix .venv/.has-,$(DEMO) $(TEST) $(LINT) $(BENCH) $(DOCS))

demo: .venv/.has-$(DEMO)  ## a first result to look at
	$(BIN)/widemargin demo

test: .venv/.has-$(TEST)  ## the tests, on two cores
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

campaign: .venv/.has-$(TEST)  ## faults, killed processes and damaged files by the thousand (an hour); prints what held
	cd tests && OMP_NUM_THREADS=1 ../$(BIN)/python -m campaign

lint: .venv/.has-$(LINT)  ## style, format and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

bench: .venv/.has-$(BENCH)  ## ratios of run times, measured in one run
	$(BIN)/python benchmarks/measure.py
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/stability.py --small

stability: .venv/.has-$(BENCH)  ## the whole stability grid (714 trainings: hours on a CPU; kept and resumed in runs/)
	$(BIN)/python benchmarks/stability.py --workers 2
	$(BIN)/python benchmarks/stability_picture.py

docs: .venv/.has-$(DOCS)  ## the documentation as a site/ to open in a browser; a broken link is an error
	$(BIN)/zensical build --clean --strict

wheel: .venv/bin/pip  ## the wheel, in dist/
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .

check-wheel: wheel  ## the wheel installs into an empty environment, imports and runs there
	rm -rf .venv-wheel
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python $(PIP_INSTALL) dist/*.whl
	cd .venv-wheel && bin/python -c "import importlib.resources as r; assert r.files('widemargin').joinpath('py.typed').is_file()"
	cd .venv-wheel && bin/python -c "import widemargin as wm; [getattr(wm, name) for name in wm.__all__]"
	cd .venv-wheel && bin/widemargin --version
	cd .venv-wheel && bin/python -m widemargin --help
	rm -rf .venv-wheel

clean:  ## what the targets above made, .venv included
	rm -rf .venv .venv-wheel dist site .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

# The stamp names the extras; it is older than pyproject.toml or constraints.txt when those have changed.
.venv/.has-%: pyproject.toml constraints.txt | .venv/bin/pip
	$(BIN)/python $(PIP_INSTALL) --editable '.[$*]'
	-@$(BIN)/python $(COMPILE)
	@touch $@

.venv/bin/pip:
	@command -v $(PYTHON) >/dev/null || { echo "$(PYTHON) is not on the PATH: install Python 3.11, or say make PYTHON=python3.12" >&2; exit 1; }
	$(PYTHON) -m venv .venv
