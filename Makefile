# make run   set up .venv, install, run the paper's study in small and report on it
# make test  set up .venv, install, run every check
# make test-mcu  the tests that run on emulated microcontrollers alone
# make bench measure docs/performance.md again (ten minutes)
# make bench-peers  compare integer networks with LiteRT, ONNX Runtime and OpenVINO
# make docs-figures  draw the pictures of the documentation again
.DEFAULT_GOAL := help
PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --constraint constraints.txt
# Two processes with a thread each. A file's tests stay in one of them, which makes the file's
# fixtures once; files come in the order that tests/conftest.py gives them.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses 2 --dist loadfile \
	--no-loadscope-reorder
C_SOURCES := $(wildcard csrc/*.h csrc/*/*) tests/deploy/amx_emulated.h \
	$(wildcard tests/deploy/microcontrollers/*.[ch] benchmarks/*.c)
SOURCES := pyproject.toml setup.py constraints.txt $(wildcard csrc/*.h csrc/*/*)

.PHONY: help run test test-mcu bench bench-peers lint docs-figures clean

help:
	@sed -n 's/^# \(make\)/\1/p' Makefile

run: .venv/installed
	$(BIN)/sudonet data fetch mnist || echo 'MNIST could not be fetched; a stand-in takes its place'
	$(BIN)/sudonet reproduce --preset quick
	$(BIN)/sudonet reproduce figures --share 0.1
	$(BIN)/sudonet report

test: .venv/installed-dev lint
	.ci/browser
	.ci/microcontrollers
	$(PYTEST)
	SUDONET_NATIVE=off $(PYTEST) -m 'without_core and not chooses_core and not slow'

test-mcu: .venv/installed-dev
	.ci/microcontrollers
	$(PYTEST) -m mcu

lint: .venv/installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	$(BIN)/clang-format --dry-run -Werror $(C_SOURCES)

docs-figures: .venv/installed-dev
	.ci/browser
	$(BIN)/python docs/figures.py

bench: .venv/installed-bench
	$(BIN)/python benchmarks/run.py

bench-peers: .venv-peers/installed
	.venv-peers/bin/python benchmarks/peers.py

clean:
	rm -rf .venv .venv-peers build dist out

$(BIN)/python:
	$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 10) or sys.exit("sudonet needs Python 3.10 or newer; %s is %d.%d: run make PYTHON=python3.11" % (sys.executable, v[0], v[1]))'
	$(PYTHON) -m venv .venv

.venv/installed: $(BIN)/python $(SOURCES)
	$(PIP) --editable .
	@touch $@

.venv/installed-dev: $(BIN)/python $(SOURCES)
	$(PIP) --editable '.[dev]'
	@touch .venv/installed $@

.venv/installed-bench: .venv/installed
	$(PIP) --editable '.[bench]'
	@touch $@

# Gigabytes that nothing else needs, so in an environment of their own.
.venv-peers/installed: benchmarks/peers.txt $(SOURCES)
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --constraint constraints.txt \
		--requirement benchmarks/peers.txt --editable .
	@touch $@
