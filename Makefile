# The two commands of the README, and their parts. Each does its own set-up.
#
#   make compare [ARGS="--ops FILE …"]   the main job: runs the comparison, prints its table, leaves a page with charts
#   make test                            format, lints, documentation, tests, scripts on the binary
#
# ROCKSDB=0 leaves the RocksDB path out, ROCKSDB=1 asks for it; its C++ library is built once per machine. Unless said, it
# is in where a C++ compiler and python3 are there or can be installed.

SHELL := /bin/bash
ROCKSDB ?= $(shell scripts/deps.sh can-rocksdb && echo 1 || echo 0)
ROCKSDB := $(ROCKSDB)
ifeq ($(ROCKSDB),1)
PATHS := rocksdb
FEATURES := --features rocksdb
# What tests, lints and documentation are built with: one set, so that nothing is compiled twice.
TESTED := --features rocksdb,s3
else
TESTED := --features s3
endif
CARGO := . scripts/env.sh $(PATHS) && cargo
ARGS ?= --report target/report

.PHONY: compare test deps fmt lint doc unit loom features script deny bench bars s3 simulate breaks crash explore

compare: deps
	$(CARGO) run --release --locked $(FEATURES) --bin lowtide -- compare $(ARGS)

.NOTPARALLEL:
test: fmt lint doc features deny script unit loom

deps:
	@scripts/deps.sh $(PATHS)

fmt: deps
	cargo fmt --all --check

lint: deps
	$(CARGO) clippy --locked --workspace --all-targets $(TESTED) -- -D warnings

doc: deps
	$(CARGO) doc --locked --workspace --no-deps $(TESTED)
doc: export RUSTDOCFLAGS := -D warnings

# The library alone, as a host embeds it: no command line, no RocksDB.
features: deps
	cargo check --locked -p lowtide --lib --no-default-features

# The hand-over between owner and writers in every interleaving; the other explorations need more tools.
loom: deps
	scripts/explore.sh loom

# Beside a real S3-compatible server, which is installed and started; says loudly if it cannot be, and tests the rest.
unit: deps
	. scripts/env.sh $(PATHS) && scripts/s3.sh cargo test --locked --workspace $(TESTED)

# The same scenarios as the tests run, through the binary that users have.
script: deps
	$(CARGO) run --locked $(TESTED) --quiet --bin lowtide -- script tests/script/*.txt

# Stores and jobs against the server alone; fails if there is none.
s3: deps
	. scripts/env.sh $(PATHS) && S3=1 scripts/s3.sh cargo test --locked $(TESTED) --test s3

# Millions of histories under faults, if asked for: make simulate SEEDS=100000
simulate: deps
	cargo run --release --locked --quiet --bin lowtide -- simulate --faults --seeds $(SEEDS)

# Every deliberate break of the protocol has to be noticed by the simulation.
breaks: deps
	cargo test --locked --features break --test sim

# The kill test for long: make crash ROUNDS=500
crash: deps
	LOWTIDE_CRASH_ROUNDS=$(ROUNDS) cargo test --locked --test crash

# Every interleaving, undefined behaviour, memory errors: what of it the machine has the tools for.
explore: deps
	scripts/explore.sh

# Advisories need a database that cargo-deny fetches itself, so they are not part of the tests.
deny:
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --locked check bans licenses sources; \
	else echo "cargo-deny is not installed: dependencies and licences were not checked"; fi

# The bars of the heap path and other engines on the same workload; writes benches/RESULTS.md.
bars: deps
	benches/run.sh

bench: deps
	$(CARGO) bench --locked --workspace $(FEATURES)
