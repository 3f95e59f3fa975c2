# Every habit of the project by name. Each target sets up .venv by itself; only the first time takes long.

PYTHON ?= python3.11
TEST_JOBS ?= 2
PYTEST_ARGS ?=
FAULTS_ARGS ?=

BIN := .venv/bin
PIP := $(BIN)/pip --disable-pip-version-check
READY := .venv/.ready
SWM_READY := .venv-swm/.ready

GL_PACKAGES := libegl1 libegl-mesa0 libgl1-mesa-dri
HAS_GL := $(PYTHON) -c 'import ctypes, os, sys; \
	"MUJOCO_GL" in os.environ or sys.platform != "linux" or ctypes.CDLL("libEGL.so.1")' 2>/dev/null

.DEFAULT_GOAL := help
.PHONY: help setup gl browser demo test test-wheel test-swm test-faults lint format bench docs report dist clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(READY) gl  ## Create .venv with everything that the other targets need

demo: setup  ## Plan the same Push-T problems with the goal cost alone, with ACID, and from a proposal
	$(BIN)/acid demo

test: lint gl browser  ## Lint, type check and run all tests
	OMP_NUM_THREADS=1 $(BIN)/pytest -n $(TEST_JOBS) $(PYTEST_ARGS)

test-wheel: dist gl  ## Install the wheel into an empty environment; run the command, the notebook and the build of the docs there
	PYTHON=$(PYTHON) .ci/wheel.sh

test-swm: $(SWM_READY)  ## Test beside stable-worldmodel itself, in an environment of its own (several GB)
	OMP_NUM_THREADS=1 .venv-swm/bin/python -m pytest tests/integrations/test_peer_real.py $(PYTEST_ARGS)

test-faults: setup  ## Damage files and calls, kill, fill disks: 20 000 inputs, 100 kills; continues where it stopped
	OMP_NUM_THREADS=1 PYTHONPATH=tests $(BIN)/python -m faults $(FAULTS_ARGS)

lint: $(READY)  ## Check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(READY)  ## Fix what ruff can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: setup  ## Run every benchmark
	@set -e; for benchmark in $$(grep -l __main__ benchmarks/*.py); do echo "== $$benchmark"; $(BIN)/python "$$benchmark"; done

report: setup  ## Write docs/report.html from the rows in results/
	$(BIN)/acid report --out docs/report.html

docs: setup  ## Build the documentation into site/; a warning is an error
	OMP_NUM_THREADS=1 $(BIN)/sphinx-build --fail-on-warning --keep-going -q -b html -d build/doctrees docs site

dist: $(READY)  ## Build the source archive and the wheel into dist/
	rm -rf dist
	$(BIN)/python -m build --outdir dist .

clean:  ## Remove what the other targets made, .venv included; data, runs and results stay
	rm -rf .venv .venv-swm site build dist docs/api src/*.egg-info .pytest_cache .ruff_cache .hypothesis
	find src tests benchmarks examples docs -name __pycache__ -type d -prune -exec rm -rf {} +

# torch comes first and by itself, so that the build which the constraints pin is chosen before anything asks for another.
$(READY): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(PIP) install --quiet -c constraints.txt torch
	$(PIP) install --quiet -c constraints.txt -e '.[all,dev]'
	@touch $@

# stable-worldmodel needs torchvision, and so a build of torch that .venv does not have.
$(SWM_READY): pyproject.toml
	test -x .venv-swm/bin/python || $(PYTHON) -m venv .venv-swm
	.venv-swm/bin/pip --disable-pip-version-check install --quiet -e '.[peer]' pytest
	@touch $@

# Rendering without a screen needs EGL, a system library that pip cannot bring.
gl:
	@$(HAS_GL) || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq $(GL_PACKAGES); \
	else \
		echo "Rendering needs libEGL.so.1. On Debian or Ubuntu run: sudo apt-get install $(GL_PACKAGES)" >&2; exit 1; \
	fi

# The page is tested in a real browser. Where none can be installed, those tests are skipped and say so.
BROWSERS := chromium chromium-browser google-chrome
browser:
	@for name in $(BROWSERS); do command -v $$name >/dev/null && exit 0; done; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
		apt-get update -qq && apt-get install -y -qq chromium && exit 0; \
	fi; \
	echo "Tests of the page need Chromium. On Debian or Ubuntu run: sudo apt-get install chromium" >&2
