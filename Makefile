# Run `make` for the list of targets.

SHELL := /bin/sh

GO       ?= go
FUZZTIME ?= 10s
# What `make test` adds to go test; `make race` sets it.
RACE     ?=
UPSTREAM ?=
VERSION  ?= $(shell git describe --always --dirty --tags 2>/dev/null || echo unknown)

# The modules of go.work, relative to this folder.
MODULES  := $(shell sed -n 's,^[[:space:]]*\./,,p' go.work)
COMMANDS := $(wildcard services/*/cmd/ccnq*)
BENCH    ?= .
COUNT    ?= 1
QUICK    ?=
SOAK     ?= 5m
ROW      ?=

# Tools are pinned, and installed on first use. They need no C compiler.
GOLANGCI_VERSION  := v2.15.0
GOTESTSUM_VERSION := v1.13.0
SQLC_VERSION      := v1.31.1
GOLANGCI  := .bin/golangci-lint-$(GOLANGCI_VERSION)/golangci-lint
GOTESTSUM := .bin/gotestsum-$(GOTESTSUM_VERSION)/gotestsum
SQLC      := .bin/sqlc-$(SQLC_VERSION)/sqlc
INSTALL    = GOBIN=$(CURDIR)/$(@D) GOWORK=off CGO_ENABLED=0 $(GO) install

# One Postgres for all packages; see pkg/testdb.
WITHPG = $(GO) run ./pkg/testdb/cmd/withpg

GOTEST = $(WITHPG) $(GOTESTSUM) --format pkgname-and-test-fails --hide-summary output -- -timeout 20m

.DEFAULT_GOAL := help

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z\/-]+:.*## / {printf "%-16s %s\n", $$1, $$2}' Makefile

# In front of an origin, make run switches the queue on for every page, unless
# the environment says otherwise.
TRY = CCNQ_UPSTREAM_URL='$(UPSTREAM)' CCNQ_QUEUE_ENABLED="$${CCNQ_QUEUE_ENABLED:-true}" \
	CCNQ_QUEUE_RULES_FILE="$${CCNQ_QUEUE_RULES_FILE:-deploy/examples/queue-everything.example.json}"

.PHONY: run
run: build ## build and run the standalone program: make run UPSTREAM=http://127.0.0.1:8080
	$(if $(UPSTREAM),$(TRY)) bin/ccnq run

.PHONY: build
build: ## build static binaries into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/ $(addprefix ./,$(COMMANDS))

# The black-box tests come last and one package at a time: they run whole
# clusters, which want the machine for themselves.
.PHONY: test
test: $(GOTESTSUM) ## run every test of every module
	$(GOTEST) $(RACE) $(addsuffix /...,$(addprefix ./,$(filter-out tests,$(MODULES))))
	$(GOTEST) $(RACE) -p 1 ./tests/...

.PHONY: race
race: ## the same under the race detector (needs a C compiler)
	$(MAKE) test RACE=-race

.PHONY: bench
bench: ## measure the gate against what it is compared with; make bench QUICK=1 ROW=flood measures less
	$(WITHPG) $(GO) run ./tests/load $(if $(QUICK),-quick) $(if $(ROW),-row $(ROW))

.PHONY: soak
soak: ## churn through a cache far over its budget, and check every byte: make soak SOAK=5m
	$(GO) run ./tests/load -soak $(SOAK)

.PHONY: bench/micro
bench/micro: ## run the benchmarks of the packages: make bench/micro BENCH=Rules COUNT=5
	$(WITHPG) $(GO) test -run '^$$' -bench '$(BENCH)' -count $(COUNT) -timeout 60m work

# Bounds are for the suite's version in package.json; its README tells what fails.
REQUIRED ?= $(if $(SUITE),0,143)
OPTIMAL  ?= $(if $(SUITE),0,75)

.PHONY: cache-tests
cache-tests: build ## run the public HTTP cache tests (needs node and npm): make cache-tests SUITE=version-or-folder
	$(GO) run ./tests/cachetests -required $(REQUIRED) -optimal $(OPTIMAL) $(if $(SUITE),-suite '$(SUITE)')

.PHONY: fuzz
fuzz: ## fuzz every target for a short time: make fuzz FUZZTIME=1m
	@set -e; for module in $(MODULES); do \
		for file in $$(grep -rl --include='*_test.go' '^func Fuzz' $$module); do \
			for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' $$file); do \
				echo "== $$(dirname $$file) $$target"; \
				$(GO) test ./$$(dirname $$file) -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME); \
			done; \
		done; \
	done

.PHONY: lint
lint: $(GOLANGCI) ## check style and architecture (.golangci.yml)
	$(GOLANGCI) run $(addsuffix /...,$(addprefix ./,$(MODULES)))

.PHONY: generate
generate: $(SQLC) ## write the generated code and documentation anew
	$(SQLC) generate
	$(GO) generate work

.PHONY: verify
verify: ## check that generated files, go.mod files and Kubernetes manifests are right, and vet
	@set -e; before=$$(mktemp); after=$$(mktemp); trap 'rm -f "$$before" "$$after"' EXIT; \
	snapshot() { git status --porcelain; git diff; git ls-files -o --exclude-standard | while read -r f; do cksum "$$f"; done; }; \
	snapshot >"$$before"; $(MAKE) --no-print-directory generate; snapshot >"$$after"; \
	diff "$$before" "$$after" || { echo "generated files were out of date: commit what make generate wrote" >&2; exit 1; }
	@set -e; for module in $(MODULES); do echo "go mod tidy -diff in $$module"; (cd $$module && GOWORK=off $(GO) mod tidy -diff); done
	$(GO) vet work
	$(GO) test -count 1 ./tests/manifests

.PHONY: tidy
tidy: ## tidy the go.mod files and format the code
	@set -e; for module in $(MODULES); do (cd $$module && GOWORK=off $(GO) mod tidy); done
	gofmt -w $(MODULES)

.PHONY: test-containers
test-containers: ## start deploy/compose.yaml with a container engine, break it in every way, and print what was found
	tests/containers/engine-up
	$(GO) run ./tests/containers

.PHONY: db/reset
db/reset: ## drop the schema in the database of CCNQ_PG_*; services make it anew when they start
	echo 'DROP SCHEMA IF EXISTS :"schema" CASCADE' | \
	PGHOST="$${CCNQ_PG_HOST:-localhost}" PGPORT="$${CCNQ_PG_PORT:-5432}" PGUSER="$${CCNQ_PG_USER:-postgres}" \
	PGPASSWORD="$${CCNQ_PG_PASSWORD:-postgres}" PGDATABASE="$${CCNQ_PG_DATABASE:-postgres}" \
	psql -v ON_ERROR_STOP=1 -v schema="$${CCNQ_PG_SCHEMA:-queue}"

.PHONY: clean
clean: ## remove binaries and tools
	rm -rf bin .bin

$(GOLANGCI):
	$(INSTALL) github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_VERSION)

$(GOTESTSUM):
	$(INSTALL) gotest.tools/gotestsum@$(GOTESTSUM_VERSION)

$(SQLC):
	$(INSTALL) github.com/sqlc-dev/sqlc/cmd/sqlc@$(SQLC_VERSION)
