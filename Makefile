# The two commands of a fresh machine are `make demo` and `make test`; both begin with `make setup`.
# Needed beforehand: make, and Python 3.11 or newer (another than python3: make setup PYTHON=python3.12).

PYTHON ?= python3
UV := .uv/bin/uv
BIN := .venv/bin
export UV_PYTHON_DOWNLOADS := never

.PHONY: setup demo test lint bench-setup bench bench-full

setup: $(UV)
	@echo "==> Installing what uv.lock names into .venv"
	$(UV) sync --locked --python .uv/bin/python
	@echo "==> Ready: $(BIN)/durable-jobs"

# uv in an environment of its own: nothing outside this folder is touched.
$(UV):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; name one: make setup PYTHON=python3.12"; exit 1; }
	@echo "==> Installing uv into .uv"
	$(PYTHON) -m venv .uv || \
		{ rm -rf .uv; echo "The module venv is missing; on Debian: apt-get install python3-venv"; exit 1; }
	.uv/bin/pip install --quiet --disable-pip-version-check uv

demo: setup
	$(BIN)/durable-jobs demo

test: setup
	@.ci/test-servers
	@.ci/tests

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

# The other queues are installed beside, in .venv-bench. BENCH_OUT=FILE also writes the rows as JSON lines.
bench-setup: $(UV)
	@UV_PROJECT_ENVIRONMENT=.venv-bench $(UV) sync --quiet --locked --python .uv/bin/python --no-group dev --group bench

bench: bench-setup
	.venv-bench/bin/python -m benchmarks

bench-full: bench-setup
	.venv-bench/bin/python -m benchmarks --full
