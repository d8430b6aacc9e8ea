# Two commands: `make demo` and `make test`. Each sets up .venv first when there is none.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
export UV_PYTHON_DOWNLOADS := never
# Hundreds of tests start processes of their own. Where Python may not keep its bytecode, each of them
# translates NumPy, Numba and SciPy again, which takes longer than most of these tests.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo demo-service test test-all test-plain-kernels test-quick test-pythons test-peers
.PHONY: client-wheel typescript image-steps release lint setup lock docs published league site notebooks clean

demo: $(VENV)/ready
	$(BIN)/belated demo

# A page that moves: the service with a simulated world behind it, until Ctrl-C.
demo-service: $(VENV)/ready
	$(BIN)/belated demo-service

# Files with compiled tests: importing the others would take as long as some of these tests.
COMPILED = $(shell grep -rl --include=test_*.py pytest.mark.compiled tests)

# What a contributor runs: everything in plain Python, and each mechanism of the compiler once.
test: $(VENV)/ready
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n 2 -m "not slow and not compiled"
	$(BIN)/pytest -n 2 -m "not slow and compiled" $(COMPILED)
	@echo "left to make test-all: databases, browsers, clusters, killed processes, all compiled combinations"

# What `make test` leaves out; it and this are all tests, each once.
test-all: $(VENV)/ready
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n 2 -m "slow and not compiled" tests
	$(BIN)/pytest -n 2 -m "slow and compiled" $(COMPILED)
	$(MAKE) test-plain-kernels

# Kernels again, without the loops that are written in the compiler's own terms.
test-plain-kernels: $(VENV)/ready
	BELATED_PLAIN_KERNELS=1 $(BIN)/pytest -n 2 -m compiled tests/numerics tests/estimators tests/core/test_core.py

# What is likeliest to depend on the version of Python: all layers in plain Python, and the compiler.
QUICK := $(addprefix tests/, bandit/test_bandit.py client core/test_core.py core/test_extras.py \
	core/test_platforms.py commands/test_cli.py features/test_features.py learner ledger/test_fold.py \
	ledger/stores/test_ledger.py service/test_service.py service/http/test_openapi.py)

test-quick: $(VENV)/ready
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -q -n 2 -m "not compiled" $(QUICK)
	$(BIN)/pytest -q -n 2 -m compiled tests/core/test_core.py tests/numerics/lowered/test_products.py

# The quick tests on every Python from 3.11 to 3.14 that is installed.
test-pythons:
	.ci/test-pythons

# contextualbandits comes without wheels: this compiles it, and then tests all adapters.
test-peers: $(VENV)/ready
	VIRTUAL_ENV=$(VENV) $(BIN)/uv pip install --quiet contextualbandits
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest -n 2 tests/peers/test_peers.py

# belated-client, the client without the compiled core: a wheel in dist/.
client-wheel: $(VENV)/ready
	cd packaging/client && $(abspath $(BIN))/hatchling build -t wheel -d $(abspath dist)

# An sdist and a wheel in dist/release, checked in a new environment; nothing is published.
release: $(VENV)/ready
	rm -rf dist/release
	$(BIN)/hatchling build -d dist/release
	$(BIN)/python packaging/check_release.py dist/release

# The TypeScript client in clients/typescript: types from the OpenAPI document, build, tests; needs node 20 and npm.
typescript: $(VENV)/ready
	cd clients/typescript && npm ci --no-audit --no-fund
	NUMBA_DISABLE_JIT=1 $(BIN)/pytest tests/test_typescript.py

# The steps of the image without a container: installation, kernels, size, start, health check, first decision; needs an index.
image-steps: $(VENV)/ready
	$(BIN)/python packaging/image_steps.py

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
	$(BIN)/python benchmarks/replicas.py >> docs/performance.new
	$(BIN)/python benchmarks/compacting.py >> docs/performance.new
	$(BIN)/python benchmarks/pending.py >> docs/performance.new
	$(BIN)/python benchmarks/importing.py >> docs/performance.new
	$(BIN)/python benchmarks/logs.py >> docs/performance.new
	$(BIN)/python benchmarks/evaluate.py >> docs/performance.new
	mv docs/performance.new docs/performance.md
	$(BIN)/python benchmarks/default_policy.py > docs/default.new
	mv docs/default.new docs/default.md
	$(BIN)/python benchmarks/widths.py > docs/widths.md
	$(BIN)/belated demo --out docs
	$(BIN)/python benchmarks/concepts.py
	$(BIN)/belated list policies --markdown > docs/algorithms.new
	mv docs/algorithms.new docs/algorithms.md

# The printed numbers beside ours: ten minutes on two quiet cores; what was played is kept in published/.
published: $(VENV)/ready
	$(BIN)/python benchmarks/published.py published > docs/published.new
	mv docs/published.new docs/published.md

# Ours beside other libraries: ours are played, peers where benchmarks/data/league.parquet lacks them; what was played
# is kept in league/, too, so that it goes on where it was stopped.
league: $(VENV)/ready
	$(BIN)/python benchmarks/league.py league > docs/league.new
	mv docs/league.new docs/league.md

# The documentation as a site in dist/site, from docs/, notebooks/ and docstrings.
site: $(VENV)/ready
	$(BIN)/sphinx-build -q -W --keep-going -c packaging/site . dist/site
	@echo "open dist/site/index.html"

# Notebooks with their outputs, from their sources notebooks/*.py: two minutes.
notebooks: $(VENV)/ready
	$(BIN)/python notebooks/execute.py

clean:
	rm -rf .venv .venv-3.* dist demo
