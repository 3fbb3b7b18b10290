# `make` prints what there is. Every target sets up what it needs in .venv first.
SHELL := /bin/sh
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
MARK := $(VENV)/.complete
DOCS_MARK := $(VENV)/.complete-docs
RELEASE_VENV := .venv-release
RELEASE_MARK := $(RELEASE_VENV)/.complete
EXTRAS := fast,uvloop,arrow,polars,sql,spark,security,demo
MORE :=

# Brokers and Spark's workers start by the hundred: compiling every module at each start takes longer than the start.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo test kernels test-core test-spark test-without-numba thorough soak cluster soak-cluster lint format peers bench interop release release-test sizes site pictures image clean check-python check-java

help: ## print this
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

check-python:
	@$(PYTHON) -c 'import sys, ensurepip, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "horolog needs Python 3.11 or newer with venv and ensurepip. Debian/Ubuntu: apt-get install python3 python3-venv; macOS: brew install python@3.12. Another interpreter: make PYTHON=python3.12 ..."; exit 1; }

check-java:
	@java -version >/dev/null 2>&1 || { \
	  echo "Spark needs a Java 17 or newer that runs. Debian/Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17 (and follow its note on linking). Without Java: make test-core."; exit 1; }
	@version=$$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	  test "$${version:-0}" -ge 17 || { echo "Spark needs Java 17 or newer; 'java' is version $$version. Set JAVA_HOME and PATH to a newer one."; exit 1; }

$(MARK): pyproject.toml constraints.txt | check-python
	@test -d $(VENV) || { echo "Setting up $(VENV): about 680 MB to download the first time (Spark is most of it)."; $(PYTHON) -m venv $(VENV); }
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --constraint constraints.txt \
	  --editable '.[$(EXTRAS)]' $(MORE) --group lint --group test
	@$(BIN)/python tools/compile_pyspark_zip.py
	@touch $(MARK)

$(RELEASE_MARK): pyproject.toml constraints.txt | check-python
	@test -d $(RELEASE_VENV) || { echo "Setting up $(RELEASE_VENV): what builds and checks a release."; $(PYTHON) -m venv $(RELEASE_VENV); }
	@$(RELEASE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	@$(RELEASE_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --group release
	@touch $(RELEASE_MARK)

demo: check-java $(MARK) ## the main job: a broker, real clients, Spark, a report (under two minutes)
	@$(BIN)/horolog demo

# Once, before several processes would compile the same beside each other.
kernels: $(MARK)
	@$(BIN)/python -c 'from horolog.record.kernels.loading import load_all; load_all()'

# The slowest tests are named at the end. The seconds of all are in .pytest_cache/d/durations/slowest.txt.
SAY_SLOWEST := --durations 12 --durations-min 2

LEAVE_OUT ?= $(if $(filter thorough,$(HYPOTHESIS_PROFILE)),, and not slow)

# One process collects the tests, then forks five workers and one more for the tests that need Spark, which share a
# JVM. Five at once: most wait for brokers, clients and processes half of their time. On macOS forks are not safe.
WORKERS := $(if $(filter Darwin,$(shell uname -s)),--numprocesses 5 --dist loadgroup,--forks 5)
RUN_TESTS = $(BIN)/python -m pytest --ignore tests/interop --ignore tests/release $(SAY_SLOWEST) $(PYTEST_OPTIONS)

test: check-java kernels ## the tests that need no peer (about five minutes on two cores)
	@$(RUN_TESTS) $(WORKERS) -m "not interop and not soak$(LEAVE_OUT)"

test-core: kernels ## the tests that need no Java
	@$(RUN_TESTS) $(WORKERS) -m "not spark and not interop and not soak$(LEAVE_OUT)"

test-spark: check-java kernels ## the tests that need Spark, in one process: it has one JVM
	@$(RUN_TESTS) -m "spark$(LEAVE_OUT)" tests/spark tests/jobs tests/demo

# What the extras `arrow` and `spark` install, but numba.
test-without-numba: ## what `test-core` runs, in an environment of its own that has no numba
	@env -u HYPOTHESIS_PROFILE $(MAKE) --no-print-directory test-core VENV=.venv-without-numba EXTRAS=uvloop,security,demo MORE="pyarrow pyspark pandas regex"

thorough: export HYPOTHESIS_PROFILE = thorough
thorough: export PYTEST_ADDOPTS = --timeout 0
thorough: test test-without-numba ## all of these and the slow ones, each property with hundreds of examples (an hour)

KILLS ?= 300
STARTS ?= 1000
STEPS ?= 240

soak: $(MARK) ## kill the broker hundreds of times under load: make soak KILLS=300 STARTS=1000 STEPS=240 SEED=
	@KILLS=$(KILLS) STARTS=$(STARTS) STEPS=$(STEPS) SEED=$(SEED) $(BIN)/python -m pytest -m soak tests/faults

BROKERS ?= khh
CONTROLLERS ?= 1
cluster: $(MARK) check-java ## a cluster with Apache Kafka's controllers: make cluster BROKERS=khh CONTROLLERS=1 (k Kafka, h horolog)
	@$(BIN)/python -m tools.cluster --brokers $(BROKERS) --controllers $(CONTROLLERS)

FAULTS ?= 100
soak-cluster: $(MARK) check-java ## faults in a cluster under load: make soak-cluster FAULTS=100 MINUTES= SEED= BROKERS=khh CONTROLLERS=1
	@$(BIN)/python -c 'from tools.peers import kafka; kafka.is_there(kafka.NEWEST) or exit("no peer kafka-4: run make peers")'
	@FAULTS=$(FAULTS) MINUTES=$(MINUTES) SEED=$(SEED) BROKERS=$(BROKERS) CONTROLLERS=$(CONTROLLERS) $(BIN)/python -m pytest -m soak tests/interop/test_interop_cluster_soak.py

lint: $(MARK) ## style, types, layers, growth
	@$(BIN)/ruff format --check src tests bench tools examples
	@$(BIN)/ruff check src tests bench tools examples
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python tools/house.py --check

format: $(MARK) ## put the code in the house style
	@$(BIN)/ruff format src tests bench tools examples
	@$(BIN)/ruff check --fix src tests bench tools examples

PEERS := .peers/kafka-4 .peers/kafka-4.3 .peers/kafka-3.9 .peers/kafka-streams .peers/kafka-connect .peers/flink .peers/mirror-maker .peers/spark .peers/go .peers/node .peers/old-clients .peers/prometheus .peers/kafkarrow \
	.peers/old/kafka-2.0.1 .peers/old/kafka-2.8.2
INTEROP := tests/interop/clients
BENCH ?= produce unbatched fetch start lookup spark_small_reads
BENCH_OPTIONS ?= --quick

peers: $(PEERS:=/.complete) ## fetch Apache Kafka (4.4, 4.3, 3.9, two of 2.x), Spark's Kafka connector, Flink, a Go, a Node, an Arrow and old Python clients, Prometheus: 450 MB

.peers/%/.complete: tools/peers/pom.xml | check-java
	@command -v mvn >/dev/null || { echo "no peer: fetching peers needs Maven. Debian/Ubuntu: apt-get install maven; macOS: brew install maven."; exit 1; }
	@rm -rf $(@D)
	@mvn --quiet --batch-mode --file $< --activate-profiles $* dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D) \
	  || { echo "no peer: Maven could not fetch $*."; exit 1; }
	@touch $@

# These have files of their own; their rule wins over the pattern.
WITH_OWN_FILE := kafka-streams kafka-connect flink mirror-maker

$(WITH_OWN_FILE:%=.peers/%/.complete): .peers/%/.complete: tools/peers/%.xml | check-java
	@rm -rf $(@D)
	@mvn --quiet --batch-mode --file $< dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D) \
	  || { echo "no peer: Maven could not fetch $*."; exit 1; }
	@touch $@

.peers/old/%/.complete: tools/peers/old-releases.xml | check-java
	@rm -rf $(@D)
	@mvn --quiet --batch-mode --file $< --activate-profiles $* dependency:copy-dependencies -DoutputDirectory=$(CURDIR)/$(@D) \
	  || { echo "no peer: Maven could not fetch $*."; exit 1; }
	@touch $@

.peers/go/.complete: $(wildcard $(INTEROP)/go/*)
	@command -v go >/dev/null || { echo "no peer: the Go client needs Go 1.21 or newer. Debian/Ubuntu: apt-get install golang-go; macOS: brew install go."; exit 1; }
	@cd $(INTEROP)/go && GOMODCACHE=$(CURDIR)/.peers/go/modules GOFLAGS=-modcacherw go build -o $(CURDIR)/.peers/go/client . \
	  || { echo "no peer: Go could not build its client."; exit 1; }
	@touch $@

.peers/node/.complete: $(INTEROP)/node/package.json
	@command -v npm >/dev/null || { echo "no peer: KafkaJS needs Node 18 or newer with npm. Debian/Ubuntu: apt-get install npm; macOS: brew install node."; exit 1; }
	@mkdir -p $(@D) && cp $< $(@D)
	@npm --prefix $(@D) install --no-package-lock --no-audit --no-fund --ignore-scripts --loglevel=error >/dev/null \
	  || { echo "no peer: npm could not fetch KafkaJS."; exit 1; }
	@touch $@

.peers/prometheus/.complete:
	@command -v apt-get >/dev/null && command -v dpkg >/dev/null || { echo "no peer: Prometheus is fetched as Debian's package; elsewhere put prometheus and promtool into $(@D)/usr/bin and touch $@."; exit 1; }
	@rm -rf $(@D) && mkdir -p $(@D)
	@cd $(@D) && apt-get --quiet=2 download prometheus 2>/dev/null && dpkg -x prometheus_*.deb . && rm prometheus_*.deb \
	  || { echo "no peer: apt-get could not fetch Prometheus; apt-get update may help."; exit 1; }
	@touch $@

# Old clients need the Python of their days.
OLD_PYTHON ?= $(shell for each in $(HOME)/.pyenv/versions/3.[678].*/bin/python python3.6 python3.7 python3.8; do $$each -c "" 2>/dev/null && { echo $$each; break; }; done)
OLD_CLIENTS := kafka-python==0.9.5 kafka-python==1.0.2 kafka-python==1.3.5 confluent-kafka==0.11.6 confluent-kafka==1.0.0

.peers/old-clients/.complete: Makefile
	@test -n "$(OLD_PYTHON)" || { echo "no peer: clients of 2016 to 2019 need Python 3.6, 3.7 or 3.8; name one: make $@ OLD_PYTHON=..."; exit 1; }
	@rm -rf $(@D) && mkdir -p $(@D)
	@for each in $(OLD_CLIENTS); do \
	  $(OLD_PYTHON) -m venv $(@D)/$$each && $(@D)/$$each/bin/python -m pip install --quiet --upgrade "pip<22" 2>/dev/null \
	  && $(@D)/$$each/bin/python -m pip install --quiet --disable-pip-version-check --prefer-binary $$each python-snappy lz4 xxhash \
	  || { echo "no peer: pip could not install $$each."; exit 1; }; done
	@touch $@

.peers/kafkarrow/.complete: | $(MARK)
	@rm -rf $(@D)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target $(@D) kafkarrow==0.1.1 \
	  || { echo "no peer: pip could not install kafkarrow."; exit 1; }
	@touch $@

bench: $(MARK) peers ## figures beside Apache Kafka: make bench BENCH=produce BENCH_OPTIONS=
	@for each in $(BENCH); do $(BIN)/python -m bench.$$each $(BENCH_OPTIONS) || exit; done
	@$(BIN)/python -m bench.decode --records 200000

interop: $(MARK) peers ## Java, Go and Node clients and Kafka's own tools against horolog; the report in Chromium
	@$(BIN)/python -m pytest tests/interop

$(DOCS_MARK): $(MARK)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[docs]'
	@touch $@

site: $(DOCS_MARK) ## these pages and the API reference as a site with search: site/index.html
	@rm -rf site
	@$(BIN)/python -m sphinx --builder html --fail-on-warning --keep-going --fresh-env \
	  --doctree-dir build/doctrees --conf-dir tools/site . site
	@$(BIN)/python -m tools.site.check site

pictures: $(MARK) ## draw the diagrams of the pages again, and take their pictures with Debian's Chromium
	@$(BIN)/python -m tools.site.diagrams
	@$(BIN)/python -m tools.site.pictures

release: $(RELEASE_MARK) ## build the wheel and the sdist into dist/, twice, and check them (CONTRIBUTING.md)
	@$(RELEASE_VENV)/bin/python tools/release.py

release-test: release $(MARK) ## install what `release` built with uv and pipx, on each Python that is here
	@$(BIN)/python -m pytest tests/release $(PYTEST_OPTIONS)

image: ## build the container image and try it; as root, with Debian's buildah and debootstrap, without an engine
	@$(PYTHON) tools/image.py

sizes: release ## measure installations, base and with each extra, for docs/dependencies.md
	@$(RELEASE_VENV)/bin/python tools/sizes.py

clean: ## remove what was built
	rm -rf $(VENV) .venv-without-numba $(RELEASE_VENV) build dist site .pytest_cache .mypy_cache .ruff_cache .hypothesis
