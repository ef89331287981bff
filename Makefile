# The two commands of the README, and their parts. Each does its own set-up.
#
#   make compare [ARGS="--data flights …"]   the main job: runs the comparison and prints its table
#   make test                                format, lints, documentation, tests, scripts on the binary
#
# ROCKSDB=1 builds and tests the RocksDB path as well; the C++ library is then built once per machine.

SHELL := /bin/bash
ROCKSDB ?= 0
ifeq ($(ROCKSDB),1)
PATHS := rocksdb
FEATURES := --features rocksdb
endif
CARGO := . scripts/env.sh $(PATHS) && cargo
ARGS ?=

.PHONY: compare test deps fmt lint doc unit features script deny bench

compare: deps
	$(CARGO) run --release --locked $(FEATURES) --bin lowtide -- compare $(ARGS)

.NOTPARALLEL:
test: fmt lint doc features deny script unit

deps:
	@scripts/deps.sh $(PATHS)

fmt: deps
	cargo fmt --all --check

lint: deps
	$(CARGO) clippy --locked --workspace --all-targets $(FEATURES) -- -D warnings

doc: deps
	$(CARGO) doc --locked --workspace --no-deps $(FEATURES)
doc: export RUSTDOCFLAGS := -D warnings

# The library alone, as a host embeds it: no command line, no RocksDB.
features: deps
	cargo check --locked -p lowtide --lib --no-default-features

unit: deps
	$(CARGO) test --locked --workspace $(FEATURES)

# The same scenarios as the tests run, through the binary that users have.
script: deps
	$(CARGO) run --locked $(FEATURES) --quiet --bin lowtide -- script tests/script/*.txt

# Advisories need a database that cargo-deny fetches itself, so they are not part of the tests.
deny:
	@if cargo deny --version >/dev/null 2>&1; then cargo deny --locked check bans licenses sources; \
	else echo "cargo-deny is not installed: dependencies and licences were not checked"; fi

bench: deps
	$(CARGO) bench --locked --workspace $(FEATURES)
