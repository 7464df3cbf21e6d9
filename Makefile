# `make run` and `make test` are the two to know. Every target sets up what it needs in .venv.
SHELL := bash
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
# Keep compiled files: otherwise each of about a hundred processes compiles the same modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup run test quick local check rest lint bench docs screenshots dist nightly clean

help:            ## what there is
	@grep -hE '^[a-z]+: .*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(READY)  ## the environment, made anew when pyproject.toml changes

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed, $(PYTHON) is $$($(PYTHON) --version): set PYTHON=..."; exit 1; }
	@echo "setting up .venv (a minute, once)"
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

run: $(READY)    ## the main job on a simulated day: `rota run --demo`, report and tables in rota-demo/
	@$(BIN)/rota run --demo

# A file's tests run in one worker, as do those that share a Kafka or a Spark (tests/conftest.py).
# Many wait for brokers and use little of a core: three workers for two cores.
PYTEST = $(BIN)/python -m pytest --dist loadscope --no-loadscope-reorder --max-worker-restart 0

test: $(READY)   ## lint, types, layers and the quick tests of everything: minutes
	@ROTA_TEST_STARTED=$$(date +%s) $(MAKE) --no-print-directory --jobs=2 --keep-going lint quick

quick: $(READY)
	@$(PYTEST) -n 3 -m 'not check and not nightly'

local: $(READY)  ## the tests of tests/pure and tests/local: no process, no Spark, any machine
	@$(PYTEST) -n 3 -m 'not check and not nightly' tests/pure tests/local

check:           ## `make test`, then all other tests but the nightly ones: before a merge
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory rest

rest: $(READY)   ## the tests that `make check` adds to `make test`
	@$(PYTEST) -n 3 -m 'check and not nightly'

lint: $(READY)   ## ruff, mypy strict, import-linter
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/mypy
	@$(BIN)/lint-imports --no-logo

bench: $(READY)  ## speed and memory beside Java, franz-go and kafka-python
	@$(BIN)/python -m bench

docs: $(READY)   ## pages made of what the sources declare: commands, layers, tables, ...; types of messages
	@$(BIN)/python docs/generate_commands.py
	@PYTHONPATH=. $(BIN)/python docs/generate_layers.py
	@PYTHONPATH=. $(BIN)/python docs/generate_libraries.py
	@PYTHONPATH=. $(BIN)/python docs/generate_states.py
	@$(BIN)/python docs/generate_tables.py
	@$(BIN)/python docs/generate_settings.py
	@$(BIN)/python docs/generate_messages.py
	@PYTHONPATH=. $(BIN)/python docs/generate_clients.py

screenshots: $(READY)  ## the pictures and the demo in README.md, from a run of `rota run --demo`
	@PYTHONPATH=. $(BIN)/python docs/make_screenshots.py

dist: $(READY)   ## the wheel and the sdist, in dist/
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation

nightly: lint    ## everything, with many more seeds and examples
	@HYPOTHESIS_PROFILE=nightly $(PYTEST) -n 3 -o faulthandler_timeout=0 -m "nightly or not nightly"

clean:           ## forget the environment and what was fetched
	rm -rf .venv .java .go .clients .hypothesis .pytest_cache .mypy_cache .ruff_cache .import_linter_cache dist
