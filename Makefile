SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --no-input
COVERAGE_MIN ?= 90
WORKERS ?=
UP ?=
BENCH ?=
CHAOS ?=
AWS ?=
PYTEST ?=
export PIP_DISABLE_PIP_VERSION_CHECK := 1

SPARK ?=
.PHONY: help up down test check chaos proto dist package aws-local bench clean spark-archive spark-cluster catalog-cluster

help:
	@echo "make up      start Tarantool, an object store and the host (UP=--quick: at once, with an emulated store)"
	@echo "make down    stop them; data is kept"
	@echo "make test    static checks, then all tests on real servers (PYTEST='-k name' for some)"
	@echo "make check   the static checks alone"
	@echo "make chaos   200 random kills while everything is in use, then a table (CHAOS='--cycles 50 --seed 7')"
	@echo "make proto   the code and reference of proto/, which are checked in"
	@echo "make dist    a wheel in dist/"
	@echo "make package each function as a zip for AWS Lambda, in dist/functions/"
	@echo "make aws-local   an emulated AWS, everything deployed with Terraform, the end-to-end suite (AWS=--stay: leave it)"
	@echo "make bench   measure, into bench/results/"
	@echo "make spark-archive   what a Spark cluster is sent, in dist/"
	@echo "make spark-cluster   every Spark step on a real master with two workers (SPARK='4 3': which versions)"
	@echo "make catalog-cluster   the catalog on two datacenters of Cassandra: writes, kills, hints, claims; with figures"
	@echo "make clean   remove what can be made again; keeps .venv and .mts"

up: $(VENV)/.runtime
	@$(BIN)/mts up $(UP)

down: $(VENV)/.runtime
	@$(BIN)/mts down

test: $(VENV)/.dev
	@COVERAGE_MIN=$(COVERAGE_MIN) WORKERS=$(WORKERS) $(BIN)/python -m scripts.test $(PYTEST)

check: $(VENV)/.dev
	@$(BIN)/python -m scripts.check

chaos: $(VENV)/.dev
	@$(BIN)/python -m tests.chaos $(CHAOS)

proto: $(VENV)/.dev
	@$(BIN)/python -m scripts.proto

dist: $(VENV)/.runtime
	@rm -rf dist
	@$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .
	@ls dist/*.whl

package: $(VENV)/.dev
	@$(BIN)/python -m scripts.package_functions

aws-local: $(VENV)/.dev
	@$(BIN)/python -m scripts.aws_local $(AWS)

bench: $(VENV)/.dev
	@$(BIN)/python -m bench $(BENCH)

spark-archive: $(VENV)/.dev
	@$(BIN)/python -m scripts.spark_archive

spark-cluster: $(VENV)/.dev
	@$(BIN)/python -m scripts.spark_cluster $(SPARK)

catalog-cluster: $(VENV)/.dev
	@$(BIN)/python -m scripts.catalog_cluster

clean:
	@rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage .coverage.*
	@find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed; make PYTHON=/path/to/python3 names another" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
	  { echo "Python has no venv module: run 'sudo apt-get install python3-venv'" >&2; exit 1; }
	@echo "making the virtualenv in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: requirements/runtime.txt pyproject.toml | $(BIN)/python
	@echo "installing what MiniToolStream needs into $(VENV)"
	@$(PIP) --require-hashes -r requirements/runtime.txt | $(BIN)/python scripts/show_pip.py requirements/runtime.txt
	@$(PIP) --quiet --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/.dev: requirements/dev.txt $(VENV)/.runtime
	@echo "installing what its tests need into $(VENV)"
	@$(PIP) --require-hashes -r requirements/dev.txt | $(BIN)/python scripts/show_pip.py requirements/dev.txt
	@touch $@
