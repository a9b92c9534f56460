# The first command ever typed in a fresh clone may be any of these: each sets up .venv by itself.
.PHONY: venv tools system demo view test test-fast lint docs bench clean
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint requirements.txt
RUN_STAMP := .venv/.run-stamp
TOOLS_STAMP := .venv/.tools-stamp

# One thread is as fast as two for one person, and spinning threads on busy cores are far slower.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
# Without this pyright asks the network for its newest version on every run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

# What people need to run dropsim: no torch, no compiler, no developer tools.
venv: $(RUN_STAMP)

$(RUN_STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("dropsim needs Python 3.11 to 3.13: run make PYTHON=python3.11" if not (3, 11) <= sys.version_info[:2] < (3, 14) else 0)'
	@echo "setting up .venv: downloads about 180 MB, takes about a minute"
	@$(PYTHON) -m venv .venv
	@$(PIP) setuptools
	@$(PIP) --no-build-isolation --editable '.[app,video,live]'
	@touch $@

# What the tests, the documentation and the training need in addition; torch as a CPU build.
tools: $(TOOLS_STAMP)

$(TOOLS_STAMP): $(RUN_STAMP)
	@echo "adding the tools of the tests: takes about two minutes"
	@$(PIP) --no-build-isolation --editable '.[all,train,dev]'
	@touch $@

demo: venv
	$(BIN)/dropsim demo --out out --force

view: venv
	$(BIN)/dropsim view

lint: docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# Into build/docs; a broken link is an error (but not with --quiet, which hides warnings from --strict too).
docs: tools
	$(BIN)/mkdocs build --strict

test: lint system
	$(BIN)/pytest

# Without slow, browser and Ray tests.
test-fast: tools
	$(BIN)/pytest -m 'not slow and not browser and not ray'

# What pip cannot install and some tests want: a browser. Where it cannot be had, those tests are skipped.
system: tools
	@missing=$$(for package in $$(cat apt-packages.txt); do \
		dpkg-query --show --showformat='$${Status}' $$package 2>/dev/null | grep -q ' installed$$' || echo $$package; done | xargs); \
	note="note: Debian's $$missing is not installed here: tests that need it and do not find it are skipped"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then echo "$$note"; exit 0; fi; \
	echo "installing $$missing"; \
	apt-get update -qq >/dev/null 2>&1; \
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing >/dev/null 2>&1 || echo "$$note"

bench: tools
	@set -e; for script in $(sort $(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script; done

clean:
	rm -rf .venv out build .pytest_cache .ruff_cache src/dropsim.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
