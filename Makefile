# Thin on purpose: what takes more than a line is in scripts/. Modules are found by their go.mod, never listed.

GOLANGCI_LINT = go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: test
test: ## all that proves the library, the same each time: redis-server if missing, gofmt, the tests of the root module
	@scripts/test.sh

.PHONY: test-modules
test-modules: ## the tests of the other modules: adapters, the rate limit service, examples
	@scripts/test.sh modules

.PHONY: race
race: ## the tests with concurrent callers, under the race detector
	@scripts/test.sh race

.PHONY: search
search: ## what the gate leaves out, for SEARCH=30m: drawn seeds, long forms, faults, races, times, a browser
	@scripts/search.sh

.PHONY: test-ui
test-ui: ## the playground's page in headless Chromium, four minutes; its pictures go to docs/img
	@scripts/install-chromium.sh
	@cd internal/test/e2e/ui && HYBRIDLIMIT_LONG=1 go test -count=1 -v -timeout 10m -pictures ../../../docs/img .

.PHONY: fuzz
fuzz: ## every fuzz target for a minute (FUZZTIME=5m make fuzz: for five)
	@scripts/fuzz.sh

.PHONY: lab
lab: ## whole fleets in virtual time, into docs/lab; fails if a bound of a scenario does not hold
	@cd bench/accuracy && go test -run '^TestLab(Calls|Regions|Hot)?$$' -count=1 -timeout 2h -lab -revision "$$(git describe --always --dirty --exclude '*')"

.PHONY: lab-regions
lab-regions: ## the part of lab about regions, about two minutes, into docs/lab; fails if a bound of a scenario does not hold
	@cd bench/accuracy && go test -run '^TestLabRegions$$' -count=1 -timeout 1h -lab -revision "$$(git describe --always --dirty --exclude '*')"

.PHONY: lab-hot
lab-hot: ## the part of lab about hot keys in up to ten thousand processes, about fifteen minutes, into docs/lab; fails if a bound of a scenario does not hold
	@cd bench/accuracy && go test -run '^TestLabHot$$' -count=1 -timeout 1h -lab -revision "$$(git describe --always --dirty --exclude '*')"

.PHONY: lab-calls
lab-calls: ## the part of lab about calls in flight, about three minutes, into docs/lab; fails if a bound of a scenario does not hold
	@cd bench/accuracy && go test -run '^TestLabCalls$$' -count=1 -timeout 1h -lab -revision "$$(git describe --always --dirty --exclude '*')"

.PHONY: bench-redis
bench-redis: ## what it costs Redis, and many keys a process: bench/REDIS.md, about ten minutes; fails if a figure that must be reached is not
	@cd bench && go run ./redis -write REDIS.md

.PHONY: bench-rls
bench-rls: ## the rate limit service beside envoyproxy/ratelimit, both built from source: bench/RLS.md, about four minutes; fails if a goal is missed
	@cd rls && go run ./bench -write ../bench/RLS.md

.PHONY: bench
bench: ## limiters side by side, about a quarter of an hour: bench/RESULTS.md, its figures and rounds
	@cd bench && go run ./compare -write . -revision "$$(git describe --always --dirty --exclude '*')"

.PHONY: chaos
chaos: ## faults on real servers and processes, about twenty minutes: docs/reliability.md, bench/chaos.json; fails if a promise is broken
	@cd bench/chaos && go run . -write ../../docs/reliability.md -record ../chaos.json

.PHONY: soak
soak: ## a quarter of an hour of faults, 64 goroutines in each of four processes; fails if a promise is broken, or a heap grows
	@cd bench/chaos && go run . -soak 15m -seed 0

.PHONY: lint
lint: ## go vet, staticcheck, errorlint and nilerr over every module that the gate tests
	@scripts/lint.sh

.PHONY: types
types: ## the types of the Go blocks in pages, of the modules that only make search tests, and of other platforms
	@scripts/lint.sh types

.PHONY: style
style: ## golangci-lint over every module; a part of make search
	@scripts/each-module.sh $(GOLANGCI_LINT) run --config "$(CURDIR)/.golangci.yml"

.PHONY: fmt
fmt: ## format as lint wants it
	@scripts/each-module.sh $(GOLANGCI_LINT) fmt --config "$(CURDIR)/.golangci.yml"

.PHONY: tidy
tidy: ## go mod tidy in every module
	@scripts/tidy.sh

.PHONY: tidy-check
tidy-check: ## fail if go mod tidy would change anything; changes nothing
	@scripts/tidy.sh -diff

.PHONY: release-check
release-check: ## programs that use each module by its version, from a module proxy made of the checkout
	@scripts/release.sh check

.PHONY: release
release: ## VERSION=v0.1.0: check that this commit can be released, set the version, and print the tags; pushes nothing
	@scripts/release.sh prepare "$(VERSION)"

.PHONY: playground
playground: ## a page on which limiters can be watched and broken
	@go run ./examples/playground

.PHONY: quickstart
quickstart: ## run the quick start example
	@go run ./examples/quickstart
