# `make` lists the targets. Everything runs in .venv, which each target makes, and brings up to date with what it needs.

PYTHON ?= python3
SECONDS ?= 60
BIN := .venv/bin
# What .venv has: the server and the clients; what the demo needs beside them; everything.
LIGHT := .venv/.light
DEMO := .venv/.demo
INSTALLED := .venv/.installed
PROTO_DIR := proto/pequod_proto
PROTOC = $(BIN)/python -m grpc_tools.protoc -I pequod_proto=proto/pequod/v1 -I pequod_proto=proto/pequod/etcd
# $(1): the folder that gets the code.
generate = $(PROTOC) --python_out=$(1) --pyi_out=$(1) --grpc_python_out=$(1) pequod_proto/pequod.proto && \
    $(PROTOC) --python_out=$(1) --pyi_out=$(1) pequod_proto/etcd.proto

# Of the Go client. gofmt lies beside Go.
GO ?= $(firstword $(shell command -v go) $(wildcard /usr/local/go/bin/go))
GO_CLIENT := proto/go
GO_TOOLS := build/go
GO_GENERATED := v1/pequod.pb.go v1/pequod_grpc.pb.go reasons.go commands.go
# $(1): the folder that gets the code.
generate_go = $(BIN)/python -m grpc_tools.protoc -I proto --plugin=$(GO_TOOLS)/protoc-gen-go --go_out=$(1) \
    --go_opt=module=pequod --plugin=$(GO_TOOLS)/protoc-gen-go-grpc --go-grpc_out=$(1) --go-grpc_opt=module=pequod \
    pequod/v1/pequod.proto && $(BIN)/python $(GO_CLIENT)/reasons.py | $(GO)fmt > $(1)/reasons.go && \
    $(BIN)/python $(GO_CLIENT)/commands.py | $(GO)fmt > $(1)/commands.go

.DEFAULT_GOAL := help
.PHONY: help go go-check install install-dev demo ran test test-long test-pythons test-extras test-quick check format typescript typescript-check proto proto-check interface interface-check coverage soak chaos freshness fuzz \
        figures bench-micro test-optimised test-spark-versions test-spark-cluster test-duckdb-versions docs docs-serve \
        behaviours cases test-planted test-planted-engine soak-memory soak-server soak-calls soak-workers soak-capped shake simulate simulate-groups views-chaos views-cassandra views-kafka views-mariadb cluster-chaos cluster-patroni chaos-lake-spark kill beyond linearizable linearizable-latest mutations ycsb graphs fuzz-long fuzz-native watching damage test-pure test-grpcio test-client-grpcio test-go-race test-shelf differ test-sanitised test-leaks wheels clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

install: $(LIGHT) ## make .venv with the server and the clients: 115 MB

install-dev: $(INSTALLED) ## make .venv with everything that the other targets need: 1.5 GB, some minutes

# The native core alone is compiled anew when its sources change: seconds; not behind pip, which has just compiled it.
# Without a compiler one line says so.
NOT_COMPILED := pequod/native/not_compiled.txt
$(LIGHT) $(DEMO) $(INSTALLED): $(wildcard pequod/native/*.?pp pequod/native/http2/*.?pp) pequod/native/build.py
	@test -e $@ -a ! -e $(NOT_COMPILED) && test -z "$$(find $(filter-out .venv/%,$^) -newer $@)" || \
		$(BIN)/python pequod/native/build.py pequod/native || true
	@touch $@

$(LIGHT): .venv/.light.packages
$(DEMO): .venv/.demo.packages
$(INSTALLED): .venv/.installed.packages

.venv/.light.packages: EXTRAS = server
.venv/.demo.packages: EXTRAS = demo
.venv/.installed.packages: EXTRAS = server,backing,otel,spark,bench,docs,dev
# pip shows what it does, as it takes its time. What it installed before the name changed goes first: the command and the
# folder of both are the same.
.venv/.%.packages: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Pequod needs Python 3.11 or newer: make PYTHON=...")'
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	@$(BIN)/python -m pip uninstall --quiet --yes pequod 2>/dev/null
	$(BIN)/python -m pip install --editable '.[$(EXTRAS)]'
	@touch $@ $(@:.packages=)

demo: $(DEMO) ## kill a server in the middle of writes, and start it again; run a small Twip, print a report
	$(BIN)/python -m lab.disk_demo
	$(BIN)/pequod bench twip --users 2000 --ticks 100000

# Three processes for each core, which tests/conftest.py counts; each takes half a GiB.
PARALLEL := -n logical --maxprocesses 6
test: $(INSTALLED) ## run the test suite, but for what tests/left_out.py lists: more seeds, stores and kinds of the same
	$(BIN)/python -m pytest $(PARALLEL) --short

test-long: $(INSTALLED) ## run what `make test` leaves out
	$(BIN)/python -m pytest $(PARALLEL) --long

QUICK := tests/engine tests/grammar tests/native tests/regress tests/client/test_clients.py tests/client/test_columns.py
test-quick: $(INSTALLED) ## run what an edit of the engine, the grammar or a client breaks first; under a minute
	HYPOTHESIS_PROFILE=quick $(BIN)/python -m pytest $(PARALLEL) $(QUICK)

test-pythons: $(INSTALLED) ## the quick tests, with the native core, under each CPython from 3.11 to 3.14 that is here
	$(BIN)/python tests/pythons.py

test-extras: $(INSTALLED) ## each extra alone in an environment that pip makes: minutes, and a GB
	PEQUOD_EXTRAS=pip $(BIN)/python -m pytest -n 2 tests/packaging/test_extras.py --timeout=1200

WORDS ?=
behaviours: ## print the tests of a behaviour, by WORDS of it; without them, write the page about tests anew
	@$(PYTHON) tests/behaviours.py $(WORDS)

ran: ## show when each target that tests ran last; `make ran-TARGET` runs one and notes it
	@$(PYTHON) tests/ran.py

# A recipe that names MAKE itself runs under `make -n` too, and would note a run that was none.
make = $(MAKE)
ran-%: $(INSTALLED)
	@$(BIN)/python tests/ran.py $* -- $(make) --no-print-directory $*

# An environment that has what .venv has, behind what is installed into it.
beside = $(BIN)/python -m venv $(1) && $(1)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" | \
	{ read -r own; echo "import site; site.addsitedir('$$($(BIN)/python -c "import sysconfig; \
	print(sysconfig.get_path('purelib'))")')" >"$$own/beside.pth"; }
SPARKS ?= 4.1 4.2 4.3
# PySpark 4.1 leaves sockets to the garbage collector, which is a warning, and an error elsewhere.
test-spark-versions: $(INSTALLED) ## the tests of the Spark data source with each PySpark of SPARKS (4.1 4.2 4.3)
	@for version in $(SPARKS); do \
		folder=build/spark-$$version; \
		test -e $$folder/.installed || { $(call beside,$$folder) && \
			$$folder/bin/python -m pip install --quiet --ignore-installed "pyspark==$$version.*" && \
			touch $$folder/.installed; } || exit 1; \
		echo "PySpark $$version"; \
		$$folder/bin/python -m pytest -q -W default tests/spark/test_options.py tests/spark/test_narrowing.py \
			tests/spark/test_batches.py tests/spark/test_source.py tests/spark/test_source_deaths.py tests/spark/test_stream.py || exit 1; \
	done

DUCKDBS ?= 2.0
# DuckLake's extension, by which some tests read a catalog, is for DuckDB 1.5.
test-duckdb-versions: $(INSTALLED) ## the tests of lakes that use DuckDB, with each DuckDB of DUCKDBS (2.0) in an environment of its own
	@for version in $(DUCKDBS); do \
		folder=build/duckdb-$$version; \
		test -e $$folder/.installed || { $(call beside,$$folder) && \
			$$folder/bin/python -m pip install --quiet --ignore-installed "duckdb==$$version.*" && \
			touch $$folder/.installed; } || exit 1; \
		echo "DuckDB $$version"; \
		$$folder/bin/python -m pytest -q -W default tests/lake/test_commands.py tests/lake/test_flight.py \
			tests/lake/test_replay.py tests/lake/test_bounds.py || exit 1; \
	done

NATIVE := pequod/native/*.?pp pequod/native/http2/*.?pp
check: $(INSTALLED) proto-check interface-check ## format, lint, types, import contracts, generated code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy docs/site.py
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run -Werror $(NATIVE)
	$(BIN)/python pequod/native/build.py --check

format: $(INSTALLED) ## format the code and mend what the linter can
	$(BIN)/ruff check --fix-only --quiet .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(NATIVE)

proto: $(INSTALLED) ## generate the protobuf code anew; that of the TypeScript and Go clients too, where npm and Go are
	$(call generate,proto)
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory typescript; \
	else echo 'npm is not installed: run `make typescript` where it is, and commit both'; fi
	@if test -n "$(GO)"; then $(MAKE) --no-print-directory go; else echo 'the Go client: run `make go` where Go is'; fi

TYPESCRIPT := proto/typescript
# The details of errors are messages of their own. $(1): the folder that gets the code.
RPC := $(BIN)/python -c 'import pathlib, google.rpc.status_pb2 as status; print(pathlib.Path(status.__file__).parents[2])'
generate_typescript = $(BIN)/python -m grpc_tools.protoc -I proto/pequod/v1 -I $$($(RPC)) \
    --plugin=protoc-gen-es=$(TYPESCRIPT)/node_modules/.bin/protoc-gen-es --es_opt=target=ts,import_extension=js \
    --es_out=$(1) pequod.proto google/rpc/status.proto google/rpc/error_details.proto && \
    $(BIN)/python $(TYPESCRIPT)/commands.py $(1)

$(TYPESCRIPT)/node_modules/.package-lock.json: $(TYPESCRIPT)/package-lock.json
	cd $(TYPESCRIPT) && npm ci --no-audit --no-fund --ignore-scripts
	@touch $@

typescript: $(INSTALLED) $(TYPESCRIPT)/node_modules/.package-lock.json ## generate the code of the TypeScript client anew, and compile it (needs Node.js)
	$(call generate_typescript,$(TYPESCRIPT)/src/generated)
	cd $(TYPESCRIPT) && npm run build

typescript-check: $(INSTALLED) $(TYPESCRIPT)/node_modules/.package-lock.json ## see that the generated code of the TypeScript client is committed
	@scratch=$$(mktemp -d) && trap 'rm -r "$$scratch"' EXIT && \
	$(call generate_typescript,$$scratch) && \
	diff -rq $$scratch $(TYPESCRIPT)/src/generated || { echo 'run `make typescript` and commit'; exit 1; }

proto-check: $(INSTALLED) ## see that the committed protobuf code is what the .proto gives
	@scratch=$$(mktemp -d) && trap 'rm -r "$$scratch"' EXIT && \
	$(call generate,$$scratch) && \
	for file in $$scratch/pequod_proto/*; do \
	    diff -u $(PROTO_DIR)/$$(basename $$file) $$file || { echo 'run `make proto` and commit'; exit 1; }; \
	done

# What its code is generated and checked with, at the versions that tools.mod names.
GO_GENERATORS := google.golang.org/protobuf/cmd/protoc-gen-go google.golang.org/grpc/cmd/protoc-gen-go-grpc
$(GO_TOOLS)/protoc-gen-go: $(GO_CLIENT)/tools.mod
	@test -n "$(GO)" || { echo 'the Go client needs Go 1.21 or newer: https://go.dev/doc/install'; exit 1; }
	mkdir -p $(GO_TOOLS) && cd $(GO_CLIENT) && $(GO) build -modfile=tools.mod -o ../../$(GO_TOOLS)/ $(GO_GENERATORS)
	@touch $@

go: $(GO_TOOLS)/protoc-gen-go ## generate the code of the Go client anew (needs Go)
	$(call generate_go,$(GO_CLIENT))

go-check: $(GO_TOOLS)/protoc-gen-go ## see that this code is committed; gofmt and go vet of the Go client
	@scratch=$$(mktemp -d) && trap 'rm -r "$$scratch"' EXIT && \
	$(call generate_go,$$scratch) && \
	for file in $(GO_GENERATED); do \
	    diff -u $(GO_CLIENT)/$$file $$scratch/$$file || { echo 'run `make go` and commit'; exit 1; }; \
	done
	@badly=$$($(GO)fmt -l $(GO_CLIENT)) && test -z "$$badly" || { echo "gofmt -w $$badly"; exit 1; }
	cd $(GO_CLIENT) && $(GO) vet ./...

# To build either takes minutes where Go has built nothing yet.
test-go-race: $(INSTALLED) ## the tests of the Go client under the race detector, and staticcheck
	cd $(GO_CLIENT) && $(GO) run -modfile=tools.mod honnef.co/go/tools/cmd/staticcheck ./...
	PEQUOD_GO_RACE=1 $(BIN)/python -m pytest tests/golang

SHELF := build/shelf
$(SHELF)/helm:
	@test -n "$(GO)" || { echo 'helm is built with Go: https://go.dev/doc/install'; exit 1; }
	GOBIN=$(abspath $(SHELF)) GOFLAGS=-mod=mod $(GO) install helm.sh/helm/v3/cmd/helm@latest

# To build helm takes minutes, once; the schemas of Kubernetes are 150 MB.
test-shelf: $(INSTALLED) $(SHELF)/helm ## the chart by helm and the schemas of Kubernetes, the alerts by promtool where it is (needs Go)
	$(BIN)/python -m pip install --quiet kubernetes-validate
	PATH="$(abspath $(SHELF)):$$PATH" $(BIN)/python -m pytest tests/test_chart.py tests/test_dashboards.py

interface: $(INSTALLED) ## generate the calls of the synchronous clients anew
	$(BIN)/python pequod/interface/generate.py

interface-check: $(INSTALLED) ## see that the committed calls are what the asynchronous ones give
	$(BIN)/python pequod/interface/generate.py --check

# Once with the native core and once without: each leaves out the twins of the other. Measuring takes its time. What
# errors say of themselves, times to live and transactions have their tests with the clients and the commands.
COVERAGE := build/coverage
COVERED := tests/engine tests/grammar tests/regress tests/native tests/commands tests/client/test_refusals.py \
    tests/client/test_embedded.py tests/client/test_embedded_expiry.py --timeout=600 --cov --cov-report=
coverage: $(INSTALLED) ## branch coverage of the engine and the grammar, natively and in Python together; fails below 100 %
	rm -rf $(COVERAGE) && mkdir -p $(COVERAGE)
	HYPOTHESIS_PROFILE=long COVERAGE_FILE=$(COVERAGE)/.coverage.native $(BIN)/python -m pytest $(PARALLEL) $(COVERED)
	HYPOTHESIS_PROFILE=long PEQUOD_PURE=1 COVERAGE_FILE=$(COVERAGE)/.coverage.pure $(BIN)/python -m pytest $(PARALLEL) $(COVERED)
	$(BIN)/python -m coverage combine --quiet --data-file=$(COVERAGE)/.coverage $(COVERAGE)
	$(BIN)/python -m coverage report --data-file=$(COVERAGE)/.coverage --skip-covered --fail-under=100

ROUNDS ?= 20
soak: $(INSTALLED) ## compare the engine with the naive model for hours: ROUNDS (20) of 1,000 examples of 100 steps a machine
	@for round in $$(seq $(ROUNDS)); do \
		echo "round $$round of $(ROUNDS)"; \
		HYPOTHESIS_PROFILE=soak $(BIN)/python -m pytest tests/engine/test_exactness.py --timeout=0 -q || exit 1; \
	done

cases: CASES = 1000000
cases: $(INSTALLED) ## compare joins with unless, keep and `.` with the naive model: CASES (1000000), half without the native core, on all cores
	$(BIN)/python -m tests.engine.cases --cases $$(($(CASES) / 2)) --seed $(or $(SEED),0)
	PEQUOD_PURE=1 $(BIN)/python -m tests.engine.cases --cases $$(($(CASES) / 2)) --seed $(or $(SEED),500000)

test-planted-engine: $(INSTALLED) ## plant faults in what keeps unless, keep and replacements, one at a time, and see that quick tests find each
	$(BIN)/python -m tests.engine.planted

CLUSTER := build/spark-cluster
test-spark-cluster: KILLS = 10
test-spark-cluster: $(INSTALLED) ## run Spark's commands, and a lake's steps while KILLS (10) executors die, on clusters with an environment of their own
	rm -rf $(CLUSTER)
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir $(CLUSTER)/dist .
	$(PYTHON) -m venv $(CLUSTER)/worker
	$(CLUSTER)/worker/bin/python -m pip install --quiet "$$(ls $(CLUSTER)/dist/*.whl)[spark,lake]"
	$(BIN)/python -m tests.spark.cluster $(CLUSTER)/worker/bin/python
	$(BIN)/python -m tests.spark.lake_cluster $(CLUSTER)/worker/bin/python --kills $(KILLS)

soak-server: SECONDS = 300
soak-server: $(INSTALLED) ## a server under clients that misbehave, for SECONDS (300): nothing is left of them
	$(BIN)/python -m tests.soak --seconds $(SECONDS)

soak-calls: CALLS = 10000000
soak-calls: $(INSTALLED) ## CALLS (10000000) calls of all kinds at one server, by several clients: its memory stays flat; an hour on two cores
	$(BIN)/python -m tests.soak.calls --calls $(CALLS)

soak-workers: EXAMPLES = 1000
soak-workers: $(INSTALLED) ## EXAMPLES (1000) random runs at three workers, each compared with the naive model: minutes
	PEQUOD_EXAMPLES=$(EXAMPLES) $(BIN)/python -m pytest -q tests/workers --timeout=7200

soak-capped: SECONDS = 600
soak-capped: $(INSTALLED) ## post to TIMELINES (100000) capped timelines for SECONDS (600), POSTS at the most: their memory stays flat
	$(BIN)/python -m tests.soak.capped --timelines $(or $(TIMELINES),100000) --posts $(or $(POSTS),10000000) --seconds $(SECONDS)

kill: SECONDS = 600
kill: $(INSTALLED) ## kill a server with a folder of data in the middle of writes, for SECONDS (600): nothing acknowledged is lost
	$(BIN)/python -m tests.disk.killed --seconds $(SECONDS) --seed $(or $(SEED),0)

HISTORIES ?= 10000
linearizable: $(INSTALLED) ## record HISTORIES (10000) of clients over kills, and have Porcupine judge them (needs Go): a quarter of an hour on two cores
	$(BIN)/python -m tests.linearizable --histories $(HISTORIES) --seed $(or $(SEED),0)

linearizable-latest: $(INSTALLED) ## the same of reads of the latest at three servers before one database, which are stopped in turn (needs Go)
	$(BIN)/python -m tests.linearizable --histories $(HISTORIES) --seed $(or $(SEED),0) --stopped

watching: $(INSTALLED) ## record HISTORIES (10000) of watches over cut connections, and look for what watches promise: a quarter of an hour on two cores
	$(BIN)/python -m tests.watching --histories $(HISTORIES) --seed $(or $(SEED),0)

beyond: SECONDS = 300
beyond: $(INSTALLED) ## a server with four times more base data than its limit of memory, for SECONDS (300): exact, and within the limit
	$(BIN)/python -m tests.disk.beyond --seconds $(SECONDS)

damage: $(INSTALLED) ## damage a folder of data RUNS (200) times: a start shows all rows, or says what is damaged
	$(BIN)/python -m tests.disk.damages --count $(RUNS) --seed $(or $(SEED),0)

RUNS ?= 200
STORE ?= slot
chaos: SECONDS =
chaos: $(INSTALLED) ## torment a server, its memory and its database RUNS (200) times, or for SECONDS, and compare; STORE is sqlite, slot, notify or failover
	$(BIN)/python -m tests.backing.chaos $(if $(SECONDS),--seconds $(SECONDS),--runs $(RUNS)) --store $(STORE)

cluster-chaos: $(INSTALLED) ## kill and stop servers of a cluster RUNS (200) times under sessions that write and read, and compare; three quarters of an hour
	$(BIN)/python -m tests.cluster_faults.chaos --runs $(RUNS) --seed $(or $(SEED),0)

# A program of its own: Patroni's packages are not Pequod's. Root has nobody run it, who has to be able to read its Python.
PATRONI_PYTHON ?= $(firstword $(wildcard /usr/bin/python3) $(PYTHON))
PATRONI := build/patroni
cluster-patroni: $(INSTALLED) ## kill a PostgreSQL that Patroni leads under load, a minute and a half: no answered write is lost
	test -x $(PATRONI)/bin/patroni || { $(PATRONI_PYTHON) -m venv $(PATRONI) && \
		$(PATRONI)/bin/python -m pip install --quiet 'patroni[etcd3]' 'psycopg[binary]'; }
	$(BIN)/python -m tests.cluster_faults.patroni --patroni $(PATRONI)/bin/patroni

TARGET ?= postgres
BEHIND ?= nothing
views-chaos: $(INSTALLED) ## kill managers of views, the server and the database RUNS (200) times, and compare; TARGET is postgres, mariadb, kafka or sqlite, BEHIND the server nothing, sqlite or postgres
	$(BIN)/python -m tests.views.chaos --runs $(RUNS) --target $(TARGET) --behind $(BEHIND)

views-mariadb: $(INSTALLED) ## the tests of views over a MariaDB, which `make test` leaves out (needs mariadb-server): some minutes
	$(BIN)/python -m pytest -n 2 tests/views -k mariadb --timeout=1200

KAFKA_JARS := build/kafka
$(KAFKA_JARS)/.fetched: tests/views/kafka.pom.xml
	@command -v mvn >/dev/null && command -v java >/dev/null || { echo 'the broker of Kafka needs Java 17, and Maven to fetch it'; exit 1; }
	mvn --quiet --batch-mode --file $< org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
		-DoutputDirectory=$(abspath $(KAFKA_JARS)) -DincludeScope=runtime
	@touch $@

views-kafka: export PEQUOD_KAFKA_JARS = $(abspath $(KAFKA_JARS))
views-kafka: $(INSTALLED) $(KAFKA_JARS)/.fetched ## the tests of views over a Kafka, and its torments RUNS (200) times (needs Java 17 and Maven): half an hour on two cores
	$(BIN)/python -m pytest -q -n0 $(wildcard tests/views/test_kafka*.py) --timeout=1200
	$(BIN)/python -m tests.views.chaos --runs $(RUNS) --seed $(SEED) --target kafka

views-schedules: SCHEDULES = 1000000
views-schedules: $(INSTALLED) ## let coordinators of versioned views die in SCHEDULES (1000000) random interleavings, from SEED (0) on: a quarter of an hour on two cores
	$(BIN)/python -m tests.views.versioned.schedules --schedules $(SCHEDULES) --seed $(SEED)

views-masters: $(INSTALLED) ## have two and three processes write the same records of a store without a master, kill and stop them, RUNS (200) times, from SEED (0) on
	$(BIN)/python -m tests.views.versioned.masters --runs $(RUNS) --seed $(SEED)

views-redis: $(INSTALLED) ## the same over three servers of Redis, which are stopped and killed as well, RUNS (200) times, from SEED (0) on
	$(BIN)/python -m tests.views.versioned.redis_masters --runs $(RUNS) --seed $(SEED)

CASSANDRA_JARS := build/cassandra
$(CASSANDRA_JARS)/.fetched: tests/views/versioned/cassandra.pom.xml
	@command -v mvn >/dev/null && command -v java >/dev/null || { echo 'the nodes of Cassandra need Java 17, and Maven to fetch them'; exit 1; }
	mvn --quiet --batch-mode --file $< org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies \
		-DoutputDirectory=$(abspath $(CASSANDRA_JARS)) -DincludeScope=runtime
	@touch $@

views-cassandra: export PEQUOD_CASSANDRA_JARS = $(abspath $(CASSANDRA_JARS))
views-cassandra: $(INSTALLED) $(CASSANDRA_JARS)/.fetched ## the same over three nodes of Cassandra, and its links (needs Java 17 and Maven): RUNS (200), a quarter of an hour on two cores
	$(BIN)/python -m pytest -q -n0 tests/views/versioned/test_cassandra_store.py --timeout=1200
	$(BIN)/python -m tests.views.versioned.cassandra_stopped
	$(BIN)/python -m tests.views.versioned.cassandra_masters --runs $(RUNS) --seed $(SEED)

chaos-lake: $(INSTALLED) ## torment a lake RUNS (200) times: kills, full disks, files cut short or gone, clocks; and compare
	$(BIN)/python -m tests.lake.faults --runs $(RUNS)

KILLS ?= 100
chaos-lake-spark: $(INSTALLED) ## kill drivers and tasks of a stream from lake to lake KILLS (100) times: each row arrives once
	$(BIN)/python -m tests.spark.lake_killed --kills $(KILLS) --seed $(SEED)

SCHEDULES ?= 10000
SEED ?= 0
COMPUTES ?= 0
RELAYS ?= 0
STEPS ?= 200
simulate: $(INSTALLED) ## simulate servers beside a database that fails: SCHEDULES (10000) of STEPS (200), COMPUTES (0) behind them, RELAYS (0) between
	$(BIN)/python -m tests.simulation --schedules $(SCHEDULES) --steps $(STEPS) --seed $(SEED) --computes $(COMPUTES) --relays $(RELAYS)

simulate-groups: $(INSTALLED) ## simulate a cluster of two home groups that fails while ranges move between them: SCHEDULES (10000) of 100 steps; FOLLOW=1: homes tell computes the map
	$(BIN)/python -m tests.simulation --schedules $(SCHEDULES) --steps 100 --seed $(SEED) --groups $(if $(FOLLOW),--follow)

TRIES ?= 100000
freshness: $(INSTALLED) ## have sessions write at one server and read at another, TRIES (100000) times, with faults on the way; STORE is sqlite, slot or notify
	$(BIN)/python -m tests.freshness --tries $(TRIES) --store $(STORE)
	$(BIN)/python -m tests.freshness --tries 1000 --store $(STORE) --without-tokens

soak-memory: SECONDS = 300
soak-memory: $(INSTALLED) ## press a server with a limit of memory for SECONDS (300), and look at what it takes
	$(BIN)/python -m tests.server.memory_soak --seconds $(SECONDS) --limit-mib 256

fuzz: $(INSTALLED) ## fuzz the parser, and what reads tokens, maps, PostgreSQL's messages and snapshots, for SECONDS (60) each
	$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --editable '.[fuzz]'
	$(BIN)/python tests/fuzz/fuzz_parser.py --seconds $(SECONDS)
	@for target in tokens maps pgoutput snapshots; do \
		$(BIN)/python tests/fuzz/fuzz_decoders.py $$target --seconds $(SECONDS) || exit 1; \
	done

fuzz-long: $(INSTALLED) ## the same for an hour each
	$(MAKE) fuzz SECONDS=3600

# The runtime that atheris brings has libFuzzer and AddressSanitizer. Whatever else the name of clang is, of version 14 on.
FUZZED := build/fuzzed
CLANG ?= $(firstword $(foreach name,clang++ clang++-19 clang++-14,$(shell command -v $(name))))
fuzz-native: $(INSTALLED) ## fuzz what the native core reads, guided by its coverage, under ASan, for SECONDS (60) each (needs clang)
	@test -n "$(CLANG)" || { echo 'there is no clang'; exit 1; }
	$(BIN)/python -c 'import atheris' 2>/dev/null || $(BIN)/python -m pip install --quiet --editable '.[fuzz]'
	rm -rf $(FUZZED) && mkdir -p $(FUZZED) && cp -r pequod grammar proto server bench tests $(FUZZED)
	cd $(FUZZED) && CXX=$(CLANG) CXXFLAGS='-g -O1 -UNDEBUG -fno-omit-frame-pointer -fsanitize=address,fuzzer-no-link' \
	    ../../$(BIN)/python pequod/native/build.py pequod/native
	@cd $(FUZZED) && for target in batches connections; do \
		LD_PRELOAD=$$(../../$(BIN)/python -c 'import atheris; print(atheris.path())')/asan_with_fuzzer.so \
		    ASAN_OPTIONS=detect_leaks=0 PYTHONPATH=.:grammar:proto:server:bench \
		    ../../$(BIN)/python tests/fuzz/fuzz_native.py $$target --seconds $(SECONDS) || exit 1; \
	done

figures: $(INSTALLED) ## take all figures that Pequod is held to, in some 22 minutes on two quiet cores
	$(BIN)/python -m lab.figures --out build/figures.md

bench-micro: $(INSTALLED) ## micro benchmarks of the engine, the wire and the client
	$(BIN)/pequod bench micro

# The sdist first, and the wheel from it: so that what others build is built once here. The tag of a wheel says which
# machines take it: auditwheel looks at the versions of the symbols that the native core asks the C library for.
WHEELS := build/wheels
wheels: $(INSTALLED) ## build dist/: the sdist, and a wheel with the native core that machines with an older C library take too
	$(BIN)/python -m pip install --quiet --editable '.[release]'
	rm -rf $(WHEELS) && mkdir -p dist
	$(BIN)/python -m build --outdir $(WHEELS) . >/dev/null
	@! ls $(WHEELS)/*-none-any.whl 2>/dev/null || { echo 'the native core was not built: is there a C++ compiler?'; exit 1; }
	if [ "$$(uname)" = Linux ]; then PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m auditwheel repair --wheel-dir dist $(WHEELS)/*.whl; \
	    else cp $(WHEELS)/*.whl dist; fi
	cp $(WHEELS)/*.tar.gz dist && ls dist

test-pure: $(INSTALLED) ## run the tests of the engine, its joins and the server without the native core
	PEQUOD_PURE=1 $(BIN)/python -m pytest $(PARALLEL) tests/engine tests/grammar tests/regress tests/server

test-grpcio: $(INSTALLED) ## run the tests of the server on gRPC's own transport; the suite runs on that which is there
	PEQUOD_TRANSPORT=grpcio $(BIN)/python -m pytest $(PARALLEL) tests/server

test-client-grpcio: $(INSTALLED) ## run the tests of the clients on gRPC's own transport; the suite runs on that which is there
	PEQUOD_CLIENT_TRANSPORT=grpcio $(BIN)/python -m pytest $(PARALLEL) tests/client tests/cluster_client

CALLS ?= 10000
differ: $(INSTALLED) ## make CALLS (10000) random calls on both transports of servers and of clients, and compare what comes
	$(BIN)/python -m tests.server.differing --calls $(CALLS)
	$(BIN)/python -m tests.client.differing --calls $(CALLS)

# In a folder of its own, so that nothing else runs on it. Python's allocator would hide what is read behind its end.
SANITISED := build/sanitised
SANITIZERS = $(foreach library,asan ubsan stdc++,$(shell g++ -print-file-name=lib$(library).so))
# What these measure, blocks and pages of Python's allocator, is not there.
UNMEASURED := not leaves_no_cycles and not ledger_is_what_the_process_takes
define build_sanitised
rm -rf $(SANITISED) && mkdir -p $(SANITISED)
cp -r pequod grammar proto server bench tests pyproject.toml $(SANITISED)
cd $(SANITISED) && CXX=g++ \
    CXXFLAGS='-g -O1 -UNDEBUG -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined' \
    ../../$(BIN)/python pequod/native/build.py pequod/native
endef
IN_SANITISED = cd $(SANITISED) && LD_PRELOAD='$(SANITIZERS)' ASAN_OPTIONS=detect_leaks=0 PYTHONMALLOC=malloc \
    HYPOTHESIS_PROFILE=quick PYTHONPATH=.:grammar:proto:server:bench ../../$(BIN)/python
test-sanitised: $(INSTALLED) ## run the tests of the native core and the engine under address and undefined-behaviour sanitizers (needs g++)
	$(build_sanitised)
	$(IN_SANITISED) -m pytest --timeout 600 -k '$(UNMEASURED)' tests/native tests/engine tests/regress

EXECUTIONS ?= 10000000
PROCESSES ?= 2
shake: $(INSTALLED) ## damage the bytes of HTTP/2 connections, in any cut, EXECUTIONS (10000000) times from SEED (0) on, under the sanitizers (needs g++)
	$(build_sanitised)
	$(IN_SANITISED) -m tests.native.shaken --executions $(EXECUTIONS) --processes $(PROCESSES) --seed $(SEED)

ONLY ?=
test-planted: $(INSTALLED) ## plant faults in the native core, one at a time, and see that the quick tests find each; ONLY takes words of some (needs a C++ compiler)
	$(BIN)/python -m tests.native.planted $(if $(ONLY),--only $(ONLY))

N ?= 100
mutations: $(INSTALLED) ## change the native core and the engine in N (100) places each, at random from SEED (0), one at a time: do tests find it? hours
	$(BIN)/python -m tests.mutations --of native --count $(N) --seed $(or $(SEED),0)
	$(BIN)/python -m tests.mutations --of engine --count $(N) --seed $(or $(SEED),0)

ycsb: OPERATIONS = 100000
ycsb: $(INSTALLED) ## the workloads A to F of go-ycsb, RECORDS (10000) and OPERATIONS (100000) each, at a server by the Go client, with go-ycsb's check of what is read (needs Go)
	$(BIN)/python -m tests.ycsb --records $(or $(RECORDS),10000) --operations $(OPERATIONS)

OPERATIONS ?= 20000
graphs: $(INSTALLED) ## OPERATIONS (20000) of LinkBench and of TAOBench between refreshes of a graph of 2,000 nodes, compared with SQL: minutes
	PEQUOD_GRAPH_OPERATIONS=$(OPERATIONS) PEQUOD_GRAPH_NODES=2000 $(BIN)/python -m pytest -q -n0 tests/graphs --timeout=7200

test-leaks: $(INSTALLED) ## look for references that the native core leaks
	$(BIN)/python -m tests.native.leaks

# What servers and Spark's workers run is optimised too: the variable is inherited. pytest warns that asserts outside of
# the tests are gone, which is the point.
test-optimised: $(INSTALLED) ## run the tests of the engine, the grammar and the server under python -O, without asserts
	PYTHONOPTIMIZE=1 $(BIN)/python -m pytest $(PARALLEL) -W 'ignore:assertions not in test modules' \
	    tests/engine tests/grammar tests/regress tests/server

# The variable silences an advertisement of the theme's makers.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs
docs: $(INSTALLED) ## build the docs site into build/site
	$(MKDOCS) build --quiet --strict

docs-serve: $(INSTALLED) ## show the docs site at http://127.0.0.1:8000 and follow changes
	$(MKDOCS) serve

clean: ## remove .venv and what tools leave behind
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage build dist
	rm -f pequod/native/_hot.*.so
