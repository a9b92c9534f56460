# The first command ever typed in a fresh clone may be any of these: each makes .venv by itself.
.PHONY: venv system demo test lint docs bench clean
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.dropsim-stamp

# One thread is as fast as two for one person, and spinning threads on busy cores are far slower.
export OMP_NUM_THREADS ?= 1
export OMP_WAIT_POLICY ?= PASSIVE
# Without this pyright asks the network for its newest version on every run.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

venv: $(STAMP)

$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("dropsim needs Python 3.11 or newer: run make PYTHON=python3.11" if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

demo: venv
	$(BIN)/dropsim demo --out out

lint: docs
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

# Into build/docs; a broken link is an error (but not with --quiet, which hides warnings from --strict too).
docs: venv
	$(BIN)/mkdocs build --strict

test: lint system
	$(BIN)/pytest

# What pip cannot install and some tests want: a browser. Where it cannot be had, those tests are skipped.
system:
	@missing=$$(for package in $$(cat apt-packages.txt); do \
		dpkg-query --show --showformat='$${Status}' $$package 2>/dev/null | grep -q ' installed$$' || echo $$package; done | xargs); \
	note="note: Debian's $$missing are not installed here: tests that need them and do not find them are skipped"; \
	if [ -z "$$missing" ]; then exit 0; fi; \
	if [ "$$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then echo "$$note"; exit 0; fi; \
	echo "installing $$missing"; \
	apt-get update -qq >/dev/null 2>&1; \
	DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing >/dev/null 2>&1 || echo "$$note"

bench: venv
	@set -e; for script in $(sort $(wildcard benchmarks/*.py)); do echo "== $$script"; $(BIN)/python $$script; done

clean:
	rm -rf .venv out build .pytest_cache .ruff_cache src/dropsim.egg-info
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
