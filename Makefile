# make run    everything for a first look: set-up, build, and one workload live beside its simulation
# make test   everything a change has to pass
# make bench  how much CPU time the simulators take and how that grows; the coordinator under load; routes
#             between datacenters; decisions between sites; relays beside plain splice; throughput beside iperf3
# make jvm    the client library and the plugin for Spark, in Java
# make spark  a Spark on six hosts in network namespaces: its shuffles by its own fetch, and as coflows
# make spark-sites  applications of Spark on hosts of five sites, by its own fetch and by relays
# make spark-suite  the ways in which Spark shuffles, each by Spark alone and by Weir, on every version of it that is supported
# make fuzz   every decoder and state machine on inputs that coverage leads to, FUZZ_SECONDS each

CARGO ?= cargo
CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR
# Where rustup puts cargo; a fresh shell may not know it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin

# What plain `cargo build` leaves out: the program for the kernel takes clang, libelf and zlib.
ALL = --features weir-cli/ebpf

WEIR = $(CARGO_TARGET_DIR)/release/weir

MVN = mvn -q -B -ntp -f jvm/pom.xml

.PHONY: run build test format lint docs licences jvm jvm-test spark spark-sites spark-suite bench fuzz clean

run: build
	@mkdir -p out
	$(WEIR) live --report out/report.html --json out/live.json
	@echo "charts: out/report.html   all numbers: out/live.json"

# Without rights for namespaces `weir live` runs on loopback; without `ip` and `tc` it says what is missing and to use
# --loopback. The rest works without them: a failed installation is no reason to stop building.
build:
	@./scripts/install-deps.sh || echo "make: going on without them"
	$(CARGO) build --release --locked

# A fetch of a hundred jars may break off once; what was fetched is kept.
jvm:
	@./scripts/install-deps.sh jvm
	$(MVN) -DskipTests -Dmaven.javadoc.skip package || $(MVN) -DskipTests -Dmaven.javadoc.skip package

# Some of them talk to real daemons, and what fails once and not twice is counted as a flake. The daemons are built as the tests
# below have them: with fewer features, most libraries would be built twice.
jvm-test: jvm
	@./scripts/install-deps.sh ebpf
	$(CARGO) test --workspace --locked $(ALL) --no-run
	WEIR_BINARY=$(abspath $(CARGO_TARGET_DIR))/debug/weir \
		mvn -B -ntp -f jvm/pom.xml -Dsurefire.rerunFailingTestsCount=1 -Dfailsafe.rerunFailingTestsCount=1 verify

spark: build jvm
	$(WEIR) bench spark shuffles --spark-home "$$(./scripts/install-spark.sh)"

spark-sites: build jvm
	$(WEIR) bench spark sites --spark-home "$$(./scripts/install-spark.sh)"

SPARK_VERSIONS ?= 3.5.9 4.0.4 4.1.3 4.2.0

spark-suite: build jvm
	@for version in $(SPARK_VERSIONS); do \
		echo "Spark $$version"; \
		$(WEIR) bench spark suite --spark-home "$$(./scripts/install-spark.sh $$version)" || exit 1; \
	done

# Tests come last, so that the last lines are the test runners' own counts.
test: format lint docs licences jvm-test
	@./scripts/install-deps.sh test
	@./scripts/install-spark.sh
	$(CARGO) test --locked --manifest-path examples/policy/Cargo.toml
	@# With the whole workspace in view, so that no library is built with fewer features than below.
	$(CARGO) test --workspace --locked $(ALL),weir-world/planted --test seeds
	$(CARGO) test --workspace --locked --no-fail-fast $(ALL)

format:
	@./scripts/install-deps.sh rust
	$(CARGO) fmt --all --check

# With everything, then the one crate that plain `cargo build` has otherwise.
lint:
	@./scripts/install-deps.sh rust
	@./scripts/install-deps.sh ebpf
	$(CARGO) clippy --workspace --all-targets --locked $(ALL) -- -D warnings
	$(CARGO) clippy -p weir-cli --all-targets --locked -- -D warnings

docs:
	@./scripts/install-deps.sh ebpf
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --workspace --no-deps --locked

# Advisories need a database from the network and are not asked for here.
licences:
	@if $(CARGO) deny --version >/dev/null 2>&1; then \
		$(CARGO) deny --workspace --locked check licenses bans sources; \
	else \
		echo "make: SKIPPED licences and sources of dependencies: cargo-deny is not installed"; \
	fi

# CPU time is the last column. The same work in half and in a quarter of the time shows how it grows.
bench: build
	$(WEIR) sim --trace synthetic:fb2010 --policy fair,varys
	$(WEIR) sim --trace synthetic:fb2010 --policy fair,varys --arrival-scale 0.5
	$(WEIR) sim --trace synthetic:fb2010 --policy fair,varys --arrival-scale 0.25
	$(WEIR) bench planning --coflows 100 --ports 100 --flows 10000
	$(WEIR) bench planning --coflows 1000 --ports 1000 --flows 100000
	$(WEIR) bench deciding --coflows 50 --sites 5
	$(WEIR) bench coordinator --agents 100 --coflows 100 --flows 10000
	$(WEIR) bench coordinator --agents 1000 --coflows 1000 --flows 100000
	$(WEIR) bench coordinator --agents 100 --join 1000 --join-seconds 10 --leave 100 --coflows 100 --flows 10000 --seconds 10
	$(WEIR) bench churn --agents 50 --seconds 30
	$(WEIR) bench relay
	$(WEIR) packet --scenario scenarios/packets/leaf-spine.toml --transport dctcp,karuna,pfabric
	$(WEIR) bench routing
	@if command -v iperf3 >/dev/null 2>&1; then \
		$(WEIR) bench loopback; \
	else \
		echo "make: SKIPPED throughput over loopback: iperf3 is not installed"; \
	fi

# Without a sanitizer, for the code is safe Rust but for a few calls of the system, none of which is reached here: so any
# stable toolchain will do. What is found stays in fuzz/artifacts; what leads further, in fuzz/corpus (seeds are in git).
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= decoders traces journal coordinator agent relay controller
FUZZ = RUSTC_BOOTSTRAP=1 $(CARGO) fuzz
FUZZ_WHERE = --fuzz-dir fuzz --sanitizer none --target-dir $(CARGO_TARGET_DIR)/fuzz
FUZZ_LIMITS = -max_total_time=$(FUZZ_SECONDS) -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0

fuzz:
	@$(CARGO) fuzz --version >/dev/null 2>&1 || $(CARGO) install cargo-fuzz --locked
	$(FUZZ) build $(FUZZ_WHERE)
	@for target in $(FUZZ_TARGETS); do \
		echo "fuzz: $$target for $(FUZZ_SECONDS) s"; \
		$(FUZZ) run $(FUZZ_WHERE) $$target -- $(FUZZ_LIMITS) || exit 1; \
	done

clean:
	$(CARGO) clean
	rm -rf out
