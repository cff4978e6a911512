# tierstate: `make demo` shows it, `make test` proves it. Everything lives in .venv and in the user's cache folder.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LOCK := requirements/dev.lock
LOCK_SUM := $(shell (cat $(LOCK) pyproject.toml; pwd) 2>/dev/null | cksum | cut -d' ' -f1)
STAMP := $(VENV)/.set-up-$(LOCK_SUM)
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
# Goals that start a broker fetch it while the rest is set up.
JARS := $(if $(filter demo test% alerts nightly soak containers bench,$(MAKECMDGOALS)),jars)
.DEFAULT_GOAL := help
# Containers often forbid Python to keep what it compiled: every test process would compile all of it again.
unexport PYTHONDONTWRITEBYTECODE
.PHONY: help setup bytecode kernels jars java demo quick test test-rest alerts test-all nightly prove soak containers check format wheel bench lock

help:  ## list the verbs
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## /  make \1\t/' | expand -t 20

java:
	@command -v java >/dev/null && java -version 2>&1 | grep -qE 'version "(1[7-9]|2[0-9])' || { \
	  echo "tierstate needs Java 17 or newer to run a real Kafka and Spark; none was found." >&2; \
	  echo "  Debian, Ubuntu:  sudo apt-get install openjdk-17-jre-headless" >&2; exit 2; }

setup: $(STAMP)  ## make .venv with the tierstate command in it (skipped when nothing changed)

# pip's hash checking refuses an editable install, and build isolation needs the network: hence three steps.
$(STAMP): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] < (3, 11))' || { echo "tierstate needs Python 3.11 or newer ($(PYTHON) is older); try make PYTHON=python3.11 …" >&2; exit 2; }
	@echo "Setting up .venv (once; a few minutes on a first run)"
	@ls $(VENV)/lib/python3*/site-packages/pip-*.dist-info/RECORD > /dev/null 2>&1 && test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@awk '/^[a-z]/ {on = /^(packaging|setuptools|wheel)==/} on && !/^ *#/' $(LOCK) > $(VENV)/build-tools.lock
	@$(PIP) install --quiet --require-hashes -r $(VENV)/build-tools.lock
	@$(PIP) install --quiet --no-compile --no-build-isolation --require-hashes -r $(LOCK)
	@$(PIP) install --quiet --no-build-isolation --no-deps -e .
	@echo "Compiling$(if $(JARS), and fetching Kafka)"
	@$(MAKE) --no-print-directory -j3 bytecode kernels $(JARS)
	@rm -f $(VENV)/.set-up-*
	@touch $@

# Two need the processors and one the network, hence side by side. Some packages have files that no Python compiles.
bytecode:
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib > /dev/null 2>&1 || true
kernels:
	@$(BIN)/python -m tierstate.log.warm_kernels
jars:
	@$(BIN)/python -c 'from tierstate.sandbox.artifacts import kafka_libs; kafka_libs()' 2> $(VENV)/jars.log || { tail -n 1 $(VENV)/jars.log; echo "What needs Kafka tries again."; }

# What an agent, a gateway, a follower of tables and a developer install. Each resolves with the versions of the one before it.
RESOLVE := uv pip compile pyproject.toml --generate-hashes --no-emit-index-url --no-header --python-version 3.11 --quiet

lock:  ## resolve requirements/*.lock again (needs uv)
	$(RESOLVE) --all-extras -o requirements/dev.lock
	cp requirements/dev.lock requirements/table.lock
	$(RESOLVE) --extra azure --extra gcs --extra gateway --extra lake --extra msk --extra registry -o requirements/table.lock
	cp requirements/table.lock requirements/gateway.lock
	$(RESOLVE) --extra azure --extra gcs --extra gateway --extra msk --extra registry -o requirements/gateway.lock
	cp requirements/gateway.lock requirements/agent.lock
	$(RESOLVE) --extra azure --extra gcs --extra msk -o requirements/agent.lock

demo: java $(STAMP)  ## the main job on real parts: a year of flights, copied, trimmed, read back, made a table (KEEP=1 leaves it running)
	@$(BIN)/python -m demo $(if $(KEEP),--keep)

# a file a worker, in the order of tests/conftest.py: tests of one file share what they start. Twice as many workers as
# cores, for most of them wait
WORKERS := $(shell expr `nproc` \* 2)
PYTEST := $(BIN)/python -m pytest -q -n $(WORKERS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder

quick: $(STAMP)  ## the pure packages and the formats, in a minute: no broker, no network
	@$(PYTEST) tests/state tests/rules tests/schemas tests/runtime tests/log --tier=test

test: java $(STAMP)  ## prove each promise of the README once, in minutes; the same examples in every run
	@PYTHONHASHSEED=0 $(PYTEST) --tier=test

test-rest: java $(STAMP)  ## what CI runs after make test: every other test on real brokers and Spark; WITHIN=3000 ends after so many seconds, and says which tests are left
	@$(PYTEST) --tier=rest $(WITHIN:%=--within=%)

alerts: java $(STAMP)  ## make every alert fire by its cause on real processes, with a real Prometheus; none fires in a healthy life
	@$(PYTEST) -n 2 --tier=alerts tests/alerts

test-all: java $(STAMP)  ## every test, the slow ones too (hours)
	@$(PYTEST) --tier=all

# A failing example that hypothesis found is written into its test as @example, to be committed.
nightly: java $(STAMP)  ## the slow tests, and property tests with new seeds; HALF=1 or HALF=2 runs one half of the files
	@rm -rf .hypothesis/patches
	@$(PYTEST) --tier=nightly --hypothesis-profile=exploring --part=$(or $(HALF:%=%/2),1/1) || { \
	  code=$$?; for patch in .hypothesis/patches/*.patch; do test -e "$$patch" && git apply --verbose "$$patch"; done; exit $$code; }

prove: $(STAMP)  ## generated histories over production code: HISTORIES=100000 FROM_SEED=0; goes on where it stopped
	@$(BIN)/python -m tests.histories.prove --histories $(or $(HISTORIES),10000) --from-seed $(or $(FROM_SEED),0)
	@$(BIN)/python -m tests.histories.small_world

soak: java $(STAMP)  ## agents left alone, in small: MINUTES=10 SEED=1; brokers, agents and the store go and come, the report is in build/soak; then the decoder is fuzzed as long, build/fuzz keeps what it found
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) $(if $(JSON),--json)
	@$(BIN)/python -m tests.fuzz batches --minutes $(or $(MINUTES),10)

format: $(STAMP)  ## rewrite the code as ruff formats it, and mend what ruff can mend
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

wheel: $(STAMP)  ## build dist/tierstate-*.whl from a copy of the checkout
	@$(BIN)/python -m tests.wheels dist

containers: java $(STAMP)  ## build the image, start compose.yaml, kill each container, read again; needs a container engine, or root and docker.io
	@$(BIN)/python -m pytest -q -m containers tests/containers

check: $(STAMP)  ## format, lint, types, layers
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: java $(STAMP)  ## speed, side by side with peers, into docs/benchmarks.md
	@$(BIN)/python -m bench
