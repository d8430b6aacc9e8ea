# Two commands: `make demo` and `make test`. Each sets up .venv first when there is none.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export UV_PYTHON_DOWNLOADS := never

.PHONY: demo demo-service test test-peers lint setup lock docs clean

demo: $(VENV)/ready
	$(BIN)/belated demo

# A page that moves: the service with a simulated world behind it, until Ctrl-C.
demo-service: $(VENV)/ready
	$(BIN)/belated demo-service

test: $(VENV)/ready
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n 2 -m "not compiled"
	$(BIN)/pytest -n 2 -m compiled

# contextualbandits comes without wheels: this compiles it, and then tests all adapters.
test-peers: $(VENV)/ready
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet contextualbandits
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n 2 tests/test_peers.py

lint: $(VENV)/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

setup: $(VENV)/ready

$(VENV)/ready: requirements.lock pyproject.toml | $(BIN)/uv
	@echo "installing the locked dependencies into $(VENV)"
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --require-hashes -r requirements.lock
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet --no-deps --no-build-isolation -e .
	touch $@

# Names and hashes only: uv.lock is full of addresses and stays out of the repository.
lock: | $(BIN)/uv
	$(BIN)/uv export --quiet --all-extras --no-emit-project --no-header --format requirements-txt \
		--output-file requirements.lock

$(BIN)/uv:
	@echo "making $(VENV)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==0.13.7

# Every number and picture in the documents; run it on a quiet machine.
docs: $(VENV)/ready
	$(BIN)/python benchmarks/online.py > docs/performance.new
	$(BIN)/python benchmarks/engine.py >> docs/performance.new
	$(BIN)/python benchmarks/policies.py >> docs/performance.new
	$(BIN)/python benchmarks/service.py >> docs/performance.new
	mv docs/performance.new docs/performance.md
	$(BIN)/python benchmarks/widths.py > docs/widths.md
	$(BIN)/belated demo --out docs
	$(BIN)/belated list policies --markdown > docs/algorithms.new
	mv docs/algorithms.new docs/algorithms.md

clean:
	rm -rf .venv demo
