# Builds, runs, tests, packages and benchmarks jsserver. `make help` lists the targets.

SHELL := /bin/sh
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:

VENV := .venv
BIN := $(VENV)/bin
STAMPS := build/stamps
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
PEER_VERSION := v2.14.5
PEER := .peer/nats-server
# The newest release, for what several servers share: a directory, links.
NEWER_VERSION := v2.15.3
NEWER := .peer/$(NEWER_VERSION)/nats-server
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PINNED := -U -c packaging/constraints.txt
BINARY_VENV := build/venv-binary

# A change in any of these rebuilds what depends on it.
CEXT_SOURCES := $(shell find cext -type f ! -name '*.so' ! -name '*.html' ! -name '*.py' \
	! -name '*.md' ! -path '*/__pycache__/*' ! -path 'cext/*.c' 2>/dev/null) \
	$(shell find cext -mindepth 2 -type f -name '*.c' 2>/dev/null) \
	$(shell find tests -name '*.pyx' -o -name '*.pxi')
PY_SOURCES := $(shell find jsserver/ cext/ -type f -name '*.py' 2>/dev/null)
PIPELINE_CEXT := pipeline/src/jsserver_spark/cext
PIPELINE_SOURCES := $(shell find -L $(PIPELINE_CEXT) -type f \( -name '*.p[yx][xdi]' -o -name '*.h' \) 2>/dev/null)

export PIP_NO_INPUT := 1
# Absolute paths, so that tests of the copies under build/ find the peers too.
export NATS_SERVER ?= $(CURDIR)/$(PEER)
export NATS_SERVER_NEWER ?= $(CURDIR)/$(NEWER)

.PHONY: help build pipeline run check test soak test-server prepared test-clients test-layers test-alone test-pipeline \
	test-checked checked-build tsan threads-build binary peer try-peer bench lint tools tools-spark clean distclean

help:
	@echo 'make build          .venv/bin/jsserver (and nats-server, an alias)'
	@echo 'make pipeline       the extensions of jsserver-spark, the pipeline, where they stand'
	@echo 'make run            build, then a server with JetStream in ./data on 127.0.0.1:4222'
	@echo 'make check          rules, types, units and models: two minutes on two cores, before a commit'
	@echo 'make test           build, then every test; those of the data plane again with checks'
	@echo 'make test-server    tests of the server alone, which need neither Java nor PySpark'
	@echo 'make test-alone     only those of them that measure the machine, one by one'
	@echo 'make test-pipeline  tests of the pipeline alone'
	@echo 'make test-checked   those of the data plane alone: bounds checks, AddressSanitizer, UndefinedBehaviorSanitizer'
	@echo 'make tsan           a server of four reactors under load, built with ThreadSanitizer'
	@echo 'make soak           long forms of tests that look for rare faults'
	@echo 'make lint           ruff, mypy, cython-lint'
	@echo 'make tools          what the tests of the server need (tools-spark: and those of the pipeline; Java)'
	@echo 'make binary         dist/jsserver (one file) and dist/jsserver-dir/ (one folder)'
	@echo 'make peer           nats-server $(PEER_VERSION) and $(NEWER_VERSION) in .peer/, for comparison; needs Go'
	@echo 'make bench          both servers side by side; writes bench/RESULTS.md'
	@echo 'make clean          removes what was built (distclean: the virtual environment too)'

build: $(STAMPS)/install $(STAMPS)/extensions $(STAMPS)/bytecode

$(STAMPS)/venv: packaging/prepare packaging/constraints.txt
	@mkdir -p $(STAMPS)
	@python=$$(sh packaging/prepare build) && test -n "$$python" && \
		{ $(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || \
		"$$python" -m venv --clear $(VENV); }
	$(PIP) install $(PINNED) pip setuptools Cython
	@touch $@

# Editable: the modules stay where they are, and the extensions are built in place by the next rule.
$(STAMPS)/install: $(STAMPS)/venv pyproject.toml
	NO_EXTENSIONS=1 $(PIP) install $(PINNED) --no-build-isolation -e .
	@touch $@

$(STAMPS)/extensions: $(STAMPS)/install setup.py packaging/extensions.py $(CEXT_SOURCES)
	BUILD_JOBS=$(JOBS) $(BIN)/python setup.py -q build_ext --inplace -j $(JOBS)
	@touch $@

# Compiled at build, so that a start does not do it, also where nothing may be written later. The folder
# jsserver/cext is a link, which compileall passes over.
$(STAMPS)/bytecode: $(STAMPS)/install $(PY_SOURCES)
	$(BIN)/python -m compileall -q jsserver cext
	@touch $@

# What the tests of the server need.
$(STAMPS)/tools: $(STAMPS)/install pyproject.toml
	$(PIP) install $(PINNED) --group test
	@touch $@

# PySpark is built from its source package, a minute or two; it needs Java.
$(STAMPS)/tools-spark: $(STAMPS)/tools pipeline/pyproject.toml
	@sh packaging/prepare spark >/dev/null
	$(PIP) install $(PINNED) --group pipeline/pyproject.toml:test
	NO_EXTENSIONS=1 $(PIP) install $(PINNED) --no-build-isolation -e ./pipeline
	@touch $@

# The pipeline's extensions in place; its editable install is what `make tools-spark` adds.
pipeline: $(STAMPS)/pipeline

$(STAMPS)/pipeline: $(STAMPS)/venv pipeline/setup.py packaging/extensions.py $(PIPELINE_SOURCES)
	cd pipeline && BUILD_JOBS=$(JOBS) $(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace -j $(JOBS)
	@touch $@

tools: $(STAMPS)/tools

tools-spark: $(STAMPS)/tools-spark

run: build
	@mkdir -p data
	exec $(BIN)/jsserver -js -sd data -a 127.0.0.1 -p 4222

lint: build tools-spark
	$(BIN)/ruff check .
	$(BIN)/mypy
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint $(filter %.pyx %.pxd %.pxi,$(CEXT_SOURCES)) \
		$(filter $(PIPELINE_CEXT)/columns%,$(filter %.pyx %.pxi,$(PIPELINE_SOURCES)))

# --- tests -------------------------------------------------------------------------------------

# What a change meets before each commit: rules, types, the layers by themselves, and thirty histories of each
# kind on the simulated disk.
check: build tools
	SIM_SEEDS=30 $(BIN)/python -m pytest -n 2 -m 'not slow and not soak' tests/unit tests/model tests/sim/test_sim.py

# What starts servers mostly waits; meanwhile the layers by themselves, the pipeline, the build with checks and its
# tests use what is left of the processor. Tests that measure the machine come last, when nothing else runs.
test: prepared
	@$(MAKE) --no-print-directory -j4 test-clients test-layers test-pipeline test-checked
	@$(MAKE) --no-print-directory test-alone

test-server: prepared
	@$(MAKE) --no-print-directory -j2 test-clients test-layers
	@$(MAKE) --no-print-directory test-alone

# The executables, too: they have tests of their own, which skip where there are none.
prepared: build tools binary try-peer

# $(1): a folder of tests, $(2): which of them, $(3): where what failed is written down. What failed beside the
# others (exit code 1) runs once more by itself: a machine that stalls for a minute is no fault of the server's.
# What the first run said stays in the output, with the slowest tests.
AGAIN := -n 0 --last-failed --last-failed-no-failures none
define tests_of
	$(BIN)/python -m pytest -o cache_dir=build/pytest/$(3) --durations=30 $(2) $(1) || { test $$? = 1 && \
		echo '== again, by themselves: the tests that failed' && \
		$(BIN)/python -m pytest -o cache_dir=build/pytest/$(3) $(2) $(AGAIN) $(1); }
endef

LAYERS := $(addprefix tests/,unit model raft sim fuzz)
# A file's tests share servers, so a file stays with one worker; tests/longest.py says which files come first.
WORKERS := -n 4 --dist loadfile --no-loadscope-reorder

test-clients: prepared
	$(call tests_of,tests/client tests/fault,$(WORKERS) -m 'not alone and not soak',clients)

test-layers: prepared
	$(call tests_of,$(LAYERS),-m 'not alone and not soak',layers)

test-alone: prepared
	$(call tests_of,tests,-m 'alone and not soak',alone)

test-pipeline: build pipeline tools-spark try-peer
	$(call tests_of,pipeline/tests,-m 'not soak',pipeline)

# What runs beside nats-servers in one cluster, or over links: beside those of the newest release, too.
MIXED_TESTS := $(addprefix tests/client/test_,routes.py route_faults.py leafs.py gateways.py gateway_faults.py meta_member.py \
	meta_leader.py regrouped.py replicated.py replicated_consumers.py replacement.py encrypted_cluster.py \
	cluster_restores.py cluster_pages_diff.py storm.py)

# Long forms of tests that `make test` runs for seconds.
soak: export SEEDS = random
soak: build pipeline tools-spark
	CHURN_SECONDS=60 REACTOR_SECONDS=60 $(MAKE) --no-print-directory tsan
	$(BIN)/python -m pytest -n 2 --dist loadfile -m soak
	DAMAGE_FLIPS=3000 $(BIN)/python -m pytest tests/fault/test_damage.py
	REPLAY_HISTORIES=8000 REPLAY_OVERWRITES=2000000 $(BIN)/python -m pytest tests/fault/test_replay.py
	REPLAY_ROUNDS=100 REPLAY_STREAMS=80 $(BIN)/python -m pytest tests/fault/test_replay_server.py
	STORE_END_SECONDS=60 $(BIN)/python -m pytest tests/unit/test_store_end.py
	for n in $$(seq 200); do $(BIN)/python -m pytest tests/unit/test_store_sidecars.py || exit 1; done
	HISTORY_ROUNDS=200 $(BIN)/python -m pytest tests/fault/test_consumer_histories.py
	PIPELINE_HISTORIES=150 $(BIN)/python -m pytest pipeline/tests/test_histories.py
	DISK_FAILURE_ROUNDS=20 $(BIN)/python -m pytest tests/fault/test_disk_failure.py tests/fault/test_disk_full.py
	for n in $$(seq 10); do STORM_SECONDS=60 STORM_RESHAPED_KINDS='ooooo ooo oop opp oon opopo' \
		$(BIN)/python -m pytest tests/client/test_storm.py || exit 1; done
	POWERCUT_IMAGES=300 $(BIN)/python -m pytest tests/fault/test_powercut.py
	SIM_SEEDS=10000 SIM_FIRST=$$(date +%s)000000 CLUSTER_SEEDS=10000 CLUSTER_FIRST=$$(date +%s)000000 CLUSTER_MUTANT_SEEDS=200 \
		$(BIN)/python -m pytest tests/sim
	RAFT_SEEDS=2000 RAFT_FIRST=$$(date +%s)000 RAFT_MUTANT_SEEDS=200 RAFT_CUTS=20000 $(BIN)/python -m pytest tests/raft
	AGREE_KINDS='opp oop ppo ooo' AGREE_SECONDS=900 $(BIN)/python -m pytest tests/client/test_replicas_agree.py
	REPLACEMENT_ROUNDS=3 $(BIN)/python -m pytest tests/client/test_replacement.py
	PEER_VERSION=$(NEWER_VERSION) $(BIN)/python -m pytest -k 'not are_those_of_a_nats_server' $(MIXED_TESTS)
	CUT_SECONDS=600 $(BIN)/python -m pytest tests/client/test_cut_links.py
	SOAK_SECONDS=3600 $(BIN)/python -m pytest tests/fault/test_soak.py
	FUZZ_SECONDS=600 $(BIN)/python -m pytest tests/fuzz/test_link_servers.py tests/fuzz/test_websocket.py tests/fuzz/test_tls.py tests/fuzz/test_ocsp.py tests/fuzz/test_tokens.py tests/fuzz/test_accounts.py
	DIFFERENTIAL_SECONDS=900 DIFFERENTIAL_SEED=$$(date +%s) $(BIN)/python -m pytest tests/fuzz/test_differential.py

# $(1): a copy of the tree, in which what was built stays.
define copy_tree
	@mkdir -p $(1)
	@find $(1) -type f ! -name '*.so' ! -path '$(1)/build/*' ! -path '$(1)/cext/*.c' \
		! -path '$(1)/tests/sim/*.c' ! -path '$(1)/tests/cext/*.c' ! -path '$(1)/$(PIPELINE_CEXT)/*.c' -delete
	@tar -cf - --exclude='*.so' --exclude='cext/*.c' --exclude='tests/sim/*.c' --exclude='tests/cext/*.c' --exclude='*.html' --exclude=__pycache__ \
		--no-wildcards-match-slash setup.py pyproject.toml README.md LICENSE cext jsserver tests packaging \
		bench pipeline | tar -xf - -C $(1)
endef

# Bounds checks, AddressSanitizer and UndefinedBehaviorSanitizer in one build. In a copy of the tree,
# because what the switches build must not replace the ordinary build.
CHECKED_TREE := build/checked
CHECKED_ENV = PYTHONPATH="$(CURDIR)/$(CHECKED_TREE):$(CURDIR)/$(CHECKED_TREE)/pipeline/src" CHECKED=1 SANITIZE=1
checked-build: build tools
	$(call copy_tree,$(CHECKED_TREE))
	for folder in . pipeline; do ( \
		cd $(CHECKED_TREE)/$$folder && $(CHECKED_ENV) BUILD_JOBS=$(JOBS) nice -n 19 \
		$(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace -j $(JOBS) ) || exit 1; done

# What the build with checks runs: the layers, and clients on every path of the data plane.
CHECKED_TESTS := $(wildcard tests/unit/test_bytes*.py tests/unit/test_store*.py \
	tests/unit/test_stream*.py tests/unit/test_consumer*.py \
	tests/unit/test_raft*.py tests/unit/test_link_*.py tests/unit/test_cipher.py \
	tests/unit/test_dataplane.py tests/unit/test_reactor.py tests/unit/test_websocket.py \
	tests/unit/test_permissions.py tests/unit/test_config_parser.py) tests/model tests/raft tests/fuzz pipeline/tests/unit $(addprefix tests/client/test_,core.py \
	routes.py leafs.py compression_diff.py streams.py sources.py consumers.py kv.py object_store.py robustness.py churn.py authority.py jetstream_diff.py \
	tls.py route_tls.py tls_reload.py ocsp_stapling.py ocsp_peer_diff.py proxy_header.py websocket.py websocket_diff.py websocket_tls.py)

# Without capture by descriptors: reports of the sanitizers go to the terminal even where they end
# the process. What failed runs once more as elsewhere, but not where a sanitizer has reported something.
CHECKED_PYTEST = cd $(CHECKED_TREE) && $(CHECKED_ENV) RAFT_MUTANT_SEEDS=0 RAFT_SEEDS=4 \
	LD_PRELOAD="$$(gcc -print-file-name=libasan.so)" PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 \
	UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1 \
	$(CURDIR)/$(BIN)/python -m pytest -o cache_dir=build/pytest --durations=20 --capture=sys -m 'not soak'
CHECKED_OUTPUT := build/checked.output
test-checked: checked-build tools-spark try-peer
	@{ ( $(CHECKED_PYTEST) -n 3 --dist loadfile --no-loadscope-reorder $(CHECKED_TESTS) ); echo $$? >$(CHECKED_OUTPUT).code; } 2>&1 | \
		tee $(CHECKED_OUTPUT)
	@code=$$(cat $(CHECKED_OUTPUT).code); test "$$code" = 0 || { test "$$code" = 1 && \
		! grep -qE 'AddressSanitizer|UndefinedBehaviorSanitizer|runtime error:' $(CHECKED_OUTPUT) && \
		echo '== again, by themselves: the tests that failed' && ( $(CHECKED_PYTEST) $(AGAIN) $(CHECKED_TESTS) ); }

# ThreadSanitizer, likewise in a copy. Only the server runs under it: a race is a line in its log, which no
# test lets pass.
THREADS_TREE := build/threads
threads-build: build tools
	$(call copy_tree,$(THREADS_TREE))
	cd $(THREADS_TREE) && PYTHONPATH="$(CURDIR)/$(THREADS_TREE)" THREADS=1 BUILD_JOBS=$(JOBS) nice -n 19 \
		$(CURDIR)/$(BIN)/python setup.py -q build_ext --inplace -j $(JOBS)

tsan: threads-build
	cd $(THREADS_TREE) && PYTHONPATH="$(CURDIR)/$(THREADS_TREE)" \
		JSSERVER="env LD_PRELOAD=$$(gcc -print-file-name=libtsan.so) TSAN_OPTIONS=history_size=7 \
		$(CURDIR)/$(BIN)/python tests/several_reactors.py 4" $(CURDIR)/$(BIN)/python -m pytest -n 2 \
		$(addprefix tests/client/test_,reactors.py churn.py core.py)

# --- the executable ----------------------------------------------------------------------------

binary: $(STAMPS)/binary

$(STAMPS)/venv-binary: $(STAMPS)/venv
	@sh packaging/prepare binary >/dev/null
	$(BIN)/python -m venv --clear --without-pip $(BINARY_VENV)
	$(PIP) --python $(BINARY_VENV) install $(PINNED) --group build
	@touch $@

# From an installed wheel, not from the work tree: only so does PyInstaller find every module. The
# wheel takes the extensions that the ordinary build left in build/lib.*, but the tests' own, and no
# stale module.
$(STAMPS)/binary: $(STAMPS)/venv-binary $(STAMPS)/extensions $(PY_SOURCES) packaging/jsserver.spec \
		packaging/entry.py
	rm -rf build/wheel build/bdist.* dist
	rm -rf build/lib.*/tests
	find build/lib.* -name '*.py' -delete 2>/dev/null || true
	BUILD_JOBS=$(JOBS) $(PIP) wheel --no-build-isolation --no-deps -w build/wheel .
	$(PIP) --python $(BINARY_VENV) install --force-reinstall --no-deps build/wheel/*.whl
	$(PIP) --python $(BINARY_VENV) install $(PINNED) build/wheel/*.whl
	cd build && venv-binary/bin/python -m PyInstaller --noconfirm --log-level ERROR \
		--distpath ../dist --workpath pyinstaller ../packaging/jsserver.spec
	@touch $@

# --- comparison --------------------------------------------------------------------------------

peer: $(PEER) $(NEWER)

$(PEER): PEER_RELEASE := $(PEER_VERSION)
$(NEWER): PEER_RELEASE := $(NEWER_VERSION)

$(PEER) $(NEWER):
	@go=$$(command -v go || ls /usr/local/go/bin/go 2>/dev/null) || { \
		echo 'make peer: Go is missing. nats-server $(PEER_RELEASE) needs Go 1.26 or newer; the golang' \
			'package of Debian 12 (1.19) is too old, take a current one from go.dev/dl.' >&2; exit 1; }; \
	GOBIN="$(CURDIR)/$(@D)" CGO_ENABLED=0 GOFLAGS=-buildvcs=false "$$go" install \
		github.com/nats-io/nats-server/v2@$(PEER_RELEASE) || { \
		echo "make peer: could not build nats-server $(PEER_RELEASE) with $$("$$go" version)" >&2; exit 1; }
	@$@ -v

# Tests that compare with the peer skip themselves where it could not be built.
try-peer:
	-@$(MAKE) --no-print-directory peer

bench: build $(PEER)
	$(BIN)/python -m bench.compare $(BENCH)

clean:
	rm -rf build dist *.egg-info pipeline/build pipeline/src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find cext tests/sim tests/cext $(PIPELINE_CEXT) -maxdepth 1 \( -name '*.so' -o -name '*.c' -o -name '*.html' \) -delete
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV) .peer
