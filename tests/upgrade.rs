//! Releases: a migration that was released is never altered, and a database that a release made is upgraded.
//!
//! `make release-freeze` is `GOV_HANDOFF_FREEZE=1` with these tests. It writes what a release fixes, for the version of
//! `Cargo.toml`: the checksums of its migrations (`tests/upgrade/frozen.txt`), a database as it makes it, with some books
//! (`tests/upgrade/VERSION.sql`), and the heading of the version in `CHANGELOG.md`. From then on the tests hold them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use gov_handoff::embedded::{Cluster, ClusterOptions, Wanted};
use sha2::{Digest, Sha256};

use crate::migrations::objects;
use crate::support::fixture::{ALL_KINDS, LEAVE_ROOM};
use crate::support::{Database, blocking, cli, cli_with, done, fresh_database, migrated, options};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn is_to_freeze() -> bool {
    std::env::var_os("GOV_HANDOFF_FREEZE").is_some_and(|asked| asked == "1")
}

/// A migration that was released: its file, its checksum, and the release that fixed it.
struct Frozen {
    file: String,
    checksum: String,
    release: String,
}

fn frozen() -> Vec<Frozen> {
    let text = std::fs::read_to_string(root().join("tests/upgrade/frozen.txt")).unwrap_or_default();
    let line = |line: &str| {
        let [file, checksum, release] = line.split_whitespace().collect::<Vec<_>>()[..] else {
            panic!("frozen.txt: `{line}` is not file, checksum, release")
        };
        Frozen { file: file.to_owned(), checksum: checksum.to_owned(), release: release.to_owned() }
    };
    text.lines().filter(|line| !line.starts_with('#')).map(line).collect()
}

/// The migrations of a folder, without the ways back: a way back may be mended after a release. File and checksum.
fn checksums(folder: &Path) -> BTreeMap<String, String> {
    let mut sums = BTreeMap::new();
    for entry in std::fs::read_dir(folder).expect("the migrations") {
        let path = entry.expect("a file").path();
        let name = path.file_name().expect("a name").to_string_lossy().into_owned();
        if name.ends_with(".sql") && !name.ends_with(".down.sql") {
            let digest = Sha256::digest(std::fs::read(&path).expect("a migration"));
            sums.insert(name, digest.iter().map(|byte| format!("{byte:02x}")).collect());
        }
    }
    sums
}

/// What was done to released migrations that nobody may do.
fn offences(frozen: &[Frozen], there: &BTreeMap<String, String>) -> Vec<String> {
    let mut found = Vec::new();
    for one in frozen {
        match there.get(&one.file) {
            None => found.push(format!("{} was released with {} and is gone", one.file, one.release)),
            Some(sum) if *sum != one.checksum => {
                found.push(format!(
                    "{} was released with {} and was altered: add a migration",
                    one.file, one.release
                ));
            }
            Some(_) => {}
        }
    }
    // A database of the release would apply a step in between after the later ones.
    if let Some(last) = frozen.iter().map(|one| &one.file).max() {
        let between = there.keys().filter(|file| *file < last && frozen.iter().all(|one| one.file != **file));
        found.extend(
            between.map(|file| format!("{file} stands among released migrations: number it after {last}")),
        );
    }
    found
}

#[test]
fn a_released_migration_is_never_altered() {
    let folder = root().join("tests/upgrade");
    let (mut all, there) = (frozen(), checksums(&root().join("migrations")));
    let wrong = offences(&all, &there);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if is_to_freeze() {
        let new = there.iter().filter(|(file, _)| all.iter().all(|one| one.file != **file));
        let new = new.map(|(file, sum)| Frozen {
            file: file.clone(),
            checksum: sum.clone(),
            release: VERSION.to_owned(),
        });
        let new: Vec<_> = new.collect();
        all.extend(new);
        let head = "# Released migrations, their sha256, and the release that fixed them. Written by `make release-freeze`.\n";
        let lines = all.iter().map(|one| format!("{} {} {}\n", one.file, one.checksum, one.release));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("frozen.txt"), head.to_owned() + &lines.collect::<String>())
            .expect("written");
        date_the_changelog();
    }
    // Each release has its heading, and its database to upgrade; a heading without them was not frozen.
    let changelog = std::fs::read_to_string(root().join("CHANGELOG.md")).expect("CHANGELOG.md");
    let released: Vec<_> = changelog
        .lines()
        .filter_map(|line| line.strip_prefix("## [")?.split(']').next())
        .filter(|v| *v != "Unreleased")
        .collect();
    for one in &all {
        assert!(released.contains(&one.release.as_str()), "CHANGELOG.md has no `## [{}]`", one.release);
        let fixture = folder.join(format!("{}.sql", one.release));
        assert!(
            is_to_freeze() || fixture.exists(),
            "{} is not there: `make release-freeze`",
            fixture.display()
        );
    }
    for version in released {
        assert!(folder.join(format!("{version}.sql")).exists() || is_to_freeze(), "{version} was not frozen");
    }
}

/// `Unreleased` becomes this version, if it has no heading yet.
fn date_the_changelog() {
    let path = root().join("CHANGELOG.md");
    let text = std::fs::read_to_string(&path).expect("CHANGELOG.md");
    if text.contains(&format!("\n## [{VERSION}]")) {
        return;
    }
    let today = chrono::Utc::now().format("%Y-%m-%d");
    let headings = format!("## [Unreleased]\n\n## [{VERSION}] - {today}");
    std::fs::write(&path, text.replacen("## [Unreleased]", &headings, 1)).expect("written");
}

#[test]
fn an_altered_a_lost_and_an_inserted_migration_are_noticed() {
    let one =
        |file: &str, sum: &str| Frozen { file: file.into(), checksum: sum.into(), release: "0.1.0".into() };
    let fixed = [one("0001_a.sql", "aa"), one("0003_c.sql", "cc")];
    let there =
        |files: &[(&str, &str)]| files.iter().map(|(f, s)| ((*f).to_owned(), (*s).to_owned())).collect();
    let good = there(&[("0001_a.sql", "aa"), ("0003_c.sql", "cc"), ("0004_d.sql", "new")]);
    assert!(offences(&fixed, &good).is_empty());
    let altered = offences(&fixed, &there(&[("0001_a.sql", "aa"), ("0003_c.sql", "c!")]));
    assert!(
        altered.len() == 1 && altered[0].contains("0003_c.sql") && altered[0].contains("altered"),
        "{altered:?}"
    );
    let gone = offences(&fixed, &there(&[("0003_c.sql", "cc")]));
    assert!(gone.len() == 1 && gone[0].contains("is gone"), "{gone:?}");
    let between =
        offences(&fixed, &there(&[("0001_a.sql", "aa"), ("0002_b.sql", "new"), ("0003_c.sql", "cc")]));
    assert!(between.len() == 1 && between[0].contains("0002_b.sql"), "{between:?}");
}

/// Every database that was frozen is upgraded; before the first release, the one that this build makes.
#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_every_release_is_upgraded_and_goes_on() {
    let folder = root().join("tests/upgrade");
    let mut dumps = Vec::new();
    if is_to_freeze() || frozen().is_empty() {
        let Some(dump) = made_by_this_build().await else { return };
        if is_to_freeze() {
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join(format!("{VERSION}.sql")), &dump).expect("written");
        }
        dumps.push((VERSION.to_owned(), dump));
    } else {
        let releases: std::collections::BTreeSet<_> = frozen().into_iter().map(|one| one.release).collect();
        for release in releases {
            let path = folder.join(format!("{release}.sql"));
            let dump = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            dumps.push((release, dump));
        }
    }
    for (release, dump) in dumps {
        upgrades(&release, &dump).await;
    }
}

/// What a release makes, with some books: signals, captures, a dead letter, an event, a job, certificates. As a script of SQL.
/// From the oldest server that is supported, so that each server can read it.
async fn made_by_this_build() -> Option<String> {
    let options = ClusterOptions { version: Wanted::V15, ..options() };
    let left_out = |why: &str| {
        assert!(std::env::var_os("GOV_HANDOFF_REQUIRE_15").is_none() && !is_to_freeze(), "{why}");
        eprintln!("SKIPPED: {why}: no database of a release is upgraded");
    };
    let Ok(cluster) = blocking(move || Cluster::start(options)).await else {
        left_out("no PostgreSQL 15 here");
        return None;
    };
    let program = cluster.bin_dir().join("postgres").canonicalize().expect("the server's program");
    let pg_dump = program.with_file_name("pg_dump");
    if !pg_dump.is_file() {
        left_out("no pg_dump 15 here");
        return None;
    }
    cluster.create_database("release", None).await.expect("a database");
    let db = Database::at("release", cluster.url("release")).await;
    keep_books(&db).await;
    let dumped = Command::new(pg_dump)
        .args(["--inserts", "--no-sync", "--dbname", &db.url])
        .output()
        .expect("pg_dump runs");
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    let roles = "select format('do $$ begin create role %I %s; exception when duplicate_object then null; end $$;', rolname,
                            case when rolcanlogin then 'login' else 'nologin' end)
                   from pg_roles where rolname like 'gov\\_handoff%' order by 1";
    let roles = db.texts(roles).await.join("\n");
    // Words for psql itself (`\restrict`) are nothing for a server.
    let dump = String::from_utf8(dumped.stdout).expect("UTF-8");
    // An instance is named after its machine, which is nobody's business.
    let machine = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let dump = ["'", "\"", " "].iter().fold(dump, |dump, before| {
        dump.replace(&format!("{before}{}-", machine.trim()), &format!("{before}host-"))
    });
    let dump: Vec<_> = dump.lines().filter(|line| !line.starts_with('\\')).collect();
    Some(format!(
        "-- Made by gov-handoff {VERSION}, by `make release-freeze`.\n{roles}\n{}\n",
        dump.join("\n")
    ))
}

async fn keep_books(db: &Database) {
    let all = [("GOV_HANDOFF_WORKERS", "all")];
    let once = async || {
        let ran = cli_with(&db.url, &["run", "--once", "--mode", "poll"], &all).await;
        assert_eq!(ran.code, 0, "{}", ran.err);
    };
    done(&db.url, &["migrate"]).await;
    db.sql(LEAVE_ROOM).await;
    db.sql(ALL_KINDS).await;
    // Some types are active, and the signals of the others wait.
    done(&db.url, &["types", "activate", "object_born", "object_registered"]).await;
    once().await;
    // A row that the outbox rejects to the end.
    db.sql("alter table event_outbox add constraint t check (canonical_address <> 'c:poison')").await;
    db.sql("update dot_config set value = '1' where key = 'event.retry.max_attempts'").await;
    db.sql("insert into birth_registry (entity_code, collection_name) values ('poison', 'c')").await;
    once().await;
    db.sql("alter table event_outbox drop constraint t").await;
    assert_eq!(db.number("select count(*) from iu_route_dead_letter").await, 1);
    db.sql("select fn_job_producer_grant('postgres', 'Hermes', true, 'user:huyen')").await;
    db.sql("select fn_job_enqueue('verify_mark', 'verify:1', 'Hermes', p_domain => 'iu', p_payload_ref => 'iu://1', p_actor => 'user:huyen')")
        .await;
    once().await;
    done(&db.url, &["audit", "--full"]).await;
}

/// The books that an upgrade may not touch.
const BOOKS: &str = "
    select 'rows ' || (select count(*) from birth_registry)
    union all select 'signals ' || (select count(*) || md5(string_agg(id::text, ',' order by id::text)) from event_outbox
        where event_type like 'governance.handoff.%' and event_type not in ('governance.handoff.certified', 'governance.handoff.heartbeat'))
    union all select 'captures ' || (select count(*) from event_pending where event_type_hint <> 'governance.handoff.certified')
    union all select 'letters ' || (select count(*) from iu_route_dead_letter)
    union all select 'jobs ' || (select count(*) from job_queue)
    order by 1";

/// The definitions of all that is ours, body by body.
const BODIES: &str = "
    select p.oid::regprocedure::text || ' ' || md5(pg_get_functiondef(p.oid)) from pg_proc p
     where p.pronamespace in ('public'::regnamespace, to_regnamespace('gov_handoff')) and p.prokind = 'f'
    -- Without the names of columns inside: a dump writes out those that the server had made up.
    union all select c.oid::regclass::text || ' ' || md5(regexp_replace(pg_get_viewdef(c.oid), ' AS [a-z_?\"]+', '', 'g')) from pg_class c
     where c.relnamespace in ('public'::regnamespace, to_regnamespace('gov_handoff')) and c.relkind = 'v'
    union all select a.attrelid::regclass::text || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || ' ' || a.attnotnull
      from pg_attribute a join pg_class c on c.oid = a.attrelid
     where c.relnamespace in ('public'::regnamespace, to_regnamespace('gov_handoff')) and c.relkind in ('r', 'v') and a.attnum > 0 and not a.attisdropped
    union all select conrelid::regclass::text || ' ' || pg_get_constraintdef(oid) from pg_constraint where connamespace = 'public'::regnamespace
    union all select tgrelid::regclass::text || ' ' || tgname || ' ' || tgenabled::text from pg_trigger where not tgisinternal
    order by 1";

async fn upgrades(release: &str, dump: &str) {
    let db = fresh_database(None).await;
    // A dump sets the search path of its session, so it has one of its own.
    crate::support::connect(&db.url)
        .await
        .batch_execute(dump)
        .await
        .unwrap_or_else(|e| panic!("{release}: {e:?}"));
    let books = db.texts(BOOKS).await;
    assert!(books.len() == 5 && books.iter().all(|line| !line.ends_with(" 0")), "{release}: {books:?}");
    done(&db.url, &["migrate", "--dry-run"]).await;
    let said = done(&db.url, &["migrate"]).await;
    assert!(!said.contains("reverted"), "{release}: {said}");
    let steps: serde_json::Value =
        serde_json::from_str(&done(&db.url, &["migrate", "status", "--json"]).await).expect("json");
    assert!(steps.as_array().expect("steps").iter().all(|s| s["state"] == "current"), "{release}: {steps}");
    // It is the database that this build makes.
    let fresh = migrated().await;
    assert_eq!(objects(&db).await, objects(&fresh).await, "{release}: objects");
    let (upgraded, made) = (db.texts(BODIES).await, fresh.texts(BODIES).await);
    let differ: Vec<_> = upgraded.iter().filter(|line| !made.contains(line)).collect();
    assert!(upgraded.len() == made.len() && differ.is_empty(), "{release}: definitions: {differ:?}");
    assert_eq!(db.texts(BOOKS).await, books, "{release}: the upgrade changed the books");
    // And it goes on: nothing is handed off twice, and what is new is handed off.
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    assert_eq!(db.texts(BOOKS).await, books, "{release}: the first run changed the books");
    db.sql("insert into birth_registry (entity_code, collection_name) values ('after the upgrade', 'c')")
        .await;
    done(&db.url, &["run", "--once", "--mode", "poll"]).await;
    let new = "select count(*) from event_outbox where event_type like '%object_born' and canonical_address = 'c:after the upgrade'";
    assert_eq!(db.number(new).await, 1, "{release}");
    let audit = cli(&db.url, &["audit", "--full", "--check"]).await;
    assert_eq!(audit.code, 0, "{release}: {}{}", audit.out, audit.err);
    done(&db.url, &["migrate", "revert", "--discard"]).await;
}
