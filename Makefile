# Every verb is a thin call; options go through ARGS: make demo ARGS=--exit, make test ARGS="tests/unit -k merge"

SHELL := bash
.NOTPARALLEL:
.DELETE_ON_ERROR:

PYTHON ?= python3
BIN := .venv/bin
READY := .venv/.ready
ARGS ?=
PIP := $(BIN)/pip install --quiet --disable-pip-version-check
COMPILE := CUSTOM_COMPILE_COMMAND='make lock' .tools/lock/bin/pip-compile --quiet --generate-hashes --all-build-deps \
  --allow-unsafe --strip-extras --no-emit-index-url --no-emit-find-links --no-emit-trusted-host --no-emit-options

# Else each of the thousand processes that a run of the tests starts compiles all modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: all help demo test lint type docs bench bench-scale bench-outage bench-kills bench-audit bench-rollup bench-demo bench-detection golden lock image-check tools clean python java

all: $(READY) help

help:  ## list every verb
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo 'options pass through: make demo ARGS=--exit'

demo: $(READY) java  ## start a real Kafka broker with dead and living topics, and show their verdicts; Ctrl-C ends it
	$(BIN)/python -m tests.demo $(ARGS)

test: $(READY) java tools  ## lint, type and every test
	@$(BIN)/pytest --collect-only -qq $(ARGS) >/dev/null & $(MAKE) --no-print-directory lint type ARGS=; code=$$?; wait; exit $$code
	@bash .ci/twice $(BIN)/pytest --numprocesses=4 --durations=20 $(ARGS)

lint: $(READY)  ## ruff: rules and format
	@$(BIN)/ruff check $(ARGS) . || { echo 'fix: $(BIN)/ruff check --fix .   (the rest by hand)'; exit 1; }
	@$(BIN)/ruff format --check . || { echo 'fix: $(BIN)/ruff format .'; exit 1; }

type: $(READY)  ## mypy --strict, and who may import whom
	@$(BIN)/mypy $(ARGS) || { echo 'fix it by hand, then: make type'; exit 1; }
	@$(BIN)/lint-imports --no-logo || { echo 'fix it by hand (CONTRIBUTING.md, "Rooms"), then: make type'; exit 1; }

docs: $(READY)  ## build the documentation as a site: open build/site/index.html
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet $(ARGS)

bench: $(READY) java  ## print what the exporter costs with 8,000 partitions of one real broker
	$(BIN)/python -m tests.bench.exporter --real $(ARGS)

bench-scale: $(READY)  ## print what it costs with 100,000 partitions of a fake cluster, and a further cluster (needs Go)
	$(BIN)/python -m tests.bench.exporter $(ARGS)

bench-outage: $(READY) java  ## print what exporters survive: outages of their broker, kills of their client
	$(BIN)/python -m tests.bench.outage $(ARGS)

bench-kills: $(READY) java  ## count torn files, duplicate rows and lost seconds when serve and rollup are killed
	$(BIN)/python -m tests.bench.kills $(ARGS)

bench-audit: $(READY)  ## print what an audit costs on a fake cluster (needs Go); ARGS="--fleets 5" for how right the first day is
	$(BIN)/python -m tests.bench.audit $(ARGS)

bench-rollup: $(READY) java  ## print what a rollup of 20,000 partitions takes: time by stage, memory
	$(BIN)/python -m tests.bench.rollup $(ARGS)

bench-demo: $(READY) java  ## print what a rollup of the demo takes; after make demo ARGS=--exit
	$(BIN)/python -m tests.bench.rollup --demo topic-liveness-demo/history $(ARGS)

bench-detection: $(READY)  ## print how fast deaths are seen, at what rate of false alarms
	$(BIN)/python -m tests.bench.detection $(ARGS)

golden: $(READY) java  ## rewrite the golden files; look at the difference before committing it
	$(BIN)/python -m dashboards.build
	$(BIN)/pytest --golden-update -k golden $(ARGS)

lock: python  ## resolve the newest allowed packages into the lock files, with hashes
	$(PYTHON) -m venv .tools/lock
	.tools/lock/bin/pip install --quiet pip-tools==7.6.2
	$(COMPILE) --all-extras --output-file requirements.lock $(ARGS) pyproject.toml
	$(COMPILE) --extra msk --extra kafka-python --constraint requirements.lock --output-file requirements-exporter.lock pyproject.toml
	$(COMPILE) --extra msk --extra spark --extra kafka-python --constraint requirements.lock --output-file requirements-image.lock pyproject.toml

image-check:  ## build both images without a Docker engine, and run them as any user (root, buildah, debootstrap; ten minutes)
	@bash .ci/image $(ARGS)

tools: $(READY)  ## install the programs that tests run: prometheus, alertmanager, chromium, helm, an S3 server, linters
	@bash .ci/tools
	@! command -v go >/dev/null || $(BIN)/python -c 'from tests.fake_cluster import build; build()'

clean:  ## remove what was built here; downloads stay in ~/.cache/topic-liveness
	rm -rf .venv .tools build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.venv/.locked: requirements.lock | python
	@echo 'building .venv from requirements.lock (once, about two minutes)'
	@$(PYTHON) -m venv .venv
	@sed -n '/^setuptools==/,$$p' requirements.lock > .venv/build.lock
	@$(PIP) --require-hashes -r .venv/build.lock
	@$(PIP) --require-hashes --no-build-isolation -r requirements.lock
	@touch $@

$(READY): .venv/.locked pyproject.toml
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	  || { echo "Python 3.11 or newer is needed, '$(PYTHON)' is '$$($(PYTHON) --version 2>&1)': make PYTHON=python3.12"; exit 1; }

java:
	@found=$$("$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 | sed -nE 's/.*version "(1\.)?([0-9]+).*/\2/p' | head -1); \
	[ "$${found:-0}" -ge 17 ] || { echo "Java 17 or newer is needed, found '$${found:-none}':" \
	  "install it (Debian: apt-get install openjdk-17-jre-headless) or point JAVA_HOME at it"; exit 1; }
