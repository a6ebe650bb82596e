//! The commands of the documents, run as they stand there: each page is one session of a shell, in a fresh directory and on a
//! database of its own.
//!
//! A block of commands says what it is: `sh run` and `sql run` are run here; `sh install` sets a machine up (a package, a service, a container),
//! and is read only; `sh covered` is run by another test. A page says what it begins with: `<!-- setup: empty -->`, `migrated`, or
//! `handed-off` (a few rows, handed off by polling). Exit code 0 is expected, or with `1 is an answer` also 1, which says that a command
//! found something.

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::support::{Database, blocking, cli_with, done, fresh_database, migrated};

/// No page may take longer.
const LIMIT: Duration = Duration::from_secs(240);

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A block between two fences: its first line, the words behind the fence, and its text without the indentation of a list.
struct Block {
    line: usize,
    info: String,
    text: String,
}

fn blocks(page: &str) -> Vec<Block> {
    let (mut found, mut open): (Vec<Block>, Option<usize>) = (Vec::new(), None);
    for (number, line) in page.lines().enumerate() {
        let indent = line.len() - line.trim_start().len();
        match (line.trim_start().strip_prefix("```"), open, found.last_mut()) {
            (Some(info), None, _) => {
                found.push(Block { line: number + 2, info: info.trim().to_owned(), text: String::new() });
                open = Some(indent);
            }
            (Some(_), Some(_), _) => open = None,
            (None, Some(begun), Some(block)) => {
                block.text.push_str(line.get(begun.min(indent)..).unwrap_or_default());
                block.text.push('\n');
            }
            _ => {}
        }
    }
    assert!(open.is_none(), "a block does not end");
    found
}

fn is_run(block: &Block) -> bool {
    ["sh run", "sql run"].contains(&block.info.as_str())
}

/// What a page begins with.
fn setup(page: &str) -> (&str, bool) {
    let words =
        page.split("<!-- setup: ").nth(1).and_then(|rest| rest.split(" -->").next()).unwrap_or("empty");
    let (first, rest) = words.split_once(", ").unwrap_or((words, ""));
    (first, rest == "1 is an answer")
}

async fn database(begins_with: &str) -> Database {
    match begins_with {
        "empty" => fresh_database(None).await,
        "migrated" => migrated().await,
        "handed-off" => {
            let db = fresh_database(None).await;
            done(&db.url, &["migrate"]).await;
            done(&db.url, &["types", "activate", "--all"]).await;
            db.births("doc", 3).await;
            let all = [("GOV_HANDOFF_WORKERS", "all")];
            let ran = cli_with(&db.url, &["run", "--once", "--mode", "poll"], &all).await;
            assert_eq!(ran.code, 0, "{}", ran.err);
            db
        }
        other => panic!("a page cannot begin with {other}"),
    }
}

/// One script of the blocks: it says before each where it is, and ends at the first command that fails.
fn script(path: &str, blocks: &[Block], one_is_an_answer: bool) -> String {
    let mut script =
        "set -eE -o pipefail\ntrap 'code=$?; kill $(jobs -p) 2>/dev/null || true; exit $code' EXIT\n"
            .to_owned();
    if one_is_an_answer {
        script += "gov-handoff() { local code=0; command gov-handoff \"$@\" || code=$?; [ $code -le 1 ]; }\n";
    }
    for block in blocks.iter().filter(|block| is_run(block)) {
        let text = match block.info.as_str() {
            "sql run" => {
                format!(
                    "psql -q -v ON_ERROR_STOP=1 \"$DATABASE_URL\" <<'END_OF_SQL'\n{}END_OF_SQL\n",
                    block.text
                )
            }
            _ => block.text.clone(),
        };
        script += &format!("echo '--- {path}:{}' >&2\n{text}", block.line);
    }
    script
}

/// Whether a command is there for a page to use. A run that claims to be complete must have it.
fn is_there(tool: &str) -> bool {
    let there = Command::new(tool)
        .arg("--version")
        .stdout(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    assert!(there || std::env::var_os("GOV_HANDOFF_REQUIRE_15").is_none(), "{tool} is not installed");
    there
}

/// Runs a script as a person would with the program on the PATH, and returns what was said.
fn session(script: &str, url: &str) -> (bool, String) {
    static COUNTER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNTER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("gov-handoff-page-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let said = std::fs::File::create(folder.join("said")).expect("a file");
    let program =
        Path::new(env!("CARGO_BIN_EXE_gov-handoff")).parent().expect("a folder").display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    let mut shell = Command::new("bash")
        .args(["-c", script])
        .current_dir(&folder)
        .env_clear()
        .env("PATH", format!("{program}:{path}"))
        .env("HOME", &folder)
        .env("NO_COLOR", "1")
        .env("DATABASE_URL", url)
        .stdin(Stdio::null())
        .stdout(said.try_clone().expect("a file"))
        .stderr(said)
        .process_group(0)
        .spawn()
        .expect("bash starts");
    let begun = std::time::Instant::now();
    let status = loop {
        match shell.try_wait().expect("the shell") {
            Some(status) => break Some(status),
            None if begun.elapsed() > LIMIT => break None,
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    // Whatever the page left in the background.
    let _ = Command::new("sh").args(["-c", &format!("kill -9 -- -{} 2>/dev/null", shell.id())]).status();
    let said = std::fs::read_to_string(folder.join("said")).unwrap_or_default();
    let _ = std::fs::remove_dir_all(&folder);
    match status {
        Some(status) => (status.success(), said),
        None => (false, format!("{said}\nit did not end within {} s", LIMIT.as_secs())),
    }
}

async fn walk(path: &str) -> String {
    let page = read(path);
    let blocks = blocks(&page);
    let needs_psql =
        blocks.iter().any(|block| is_run(block) && (block.info == "sql run" || block.text.contains("psql ")));
    if needs_psql && !is_there("psql") {
        eprintln!("SKIPPED: psql is not installed; the commands of {path} were not run");
        return String::new();
    }
    let (begins_with, one_is_an_answer) = setup(&page);
    let db = database(begins_with).await;
    let (script, url) = (script(path, &blocks, one_is_an_answer), db.url.clone());
    let (good, said) = blocking(move || session(&script, &url)).await;
    assert!(good, "{path} does not work as it stands:\n{said}");
    said
}

#[tokio::test(flavor = "multi_thread")]
async fn the_tutorial_ends_with_a_verdict() {
    let said = walk("docs/tutorial.md").await;
    for words in ["Everything committed before", "1003 births have a signal"] {
        assert!(said.is_empty() || said.contains(words), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_operating_work() {
    walk("docs/operating.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_findings_work() {
    walk("docs/findings.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_procedures_work() {
    walk("docs/procedures.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_deployment_work() {
    walk("docs/deployment.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_configuration_work() {
    walk("docs/configuration.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_feed_work() {
    walk("docs/feed.md").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_said_about_losing_a_row_is_so() {
    let said = walk("docs/how-to-lose-a-row.md").await;
    assert!(
        said.is_empty() || said.contains("exit code 1"),
        "the audit did not find the signal that was deleted: {said}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_the_readme_work_line_by_line() {
    let said = walk("README.md").await;
    let Some(verdict) = said.find("Everything committed before") else {
        assert!(said.is_empty(), "{said}");
        return;
    };
    // `make docs` takes the picture of what was really said.
    if std::env::var_os("GOV_HANDOFF_WRITE_DOCS").is_some() {
        let status = said[verdict..].split("\nok    server version").next().unwrap_or_default().trim_end();
        let lines: Vec<_> = status.lines().filter(|line| !line.contains(" INFO ")).collect();
        let folder = root().join("docs/images");
        std::fs::create_dir_all(&folder).expect("a folder");
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let lines = lines.join("\n").replace(&format!("{}-", host.trim()), "host-");
        let picture = crate::support::picture::terminal("gov-handoff status", &lines);
        std::fs::write(folder.join("status.svg"), picture).expect("the picture is written");
    }
}

/// The pages of the documents, and the first page.
fn pages() -> Vec<String> {
    let entries =
        std::fs::read_dir(root().join("docs")).expect("docs").map(|e| e.expect("a file").file_name());
    let names = entries.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.ends_with(".md"));
    names.map(|name| format!("docs/{name}")).chain(["README.md".to_owned()]).collect()
}

/// The pages that no test above names, those that were written later among them.
#[tokio::test(flavor = "multi_thread")]
async fn the_commands_of_every_other_page_work() {
    let named = include_str!("walkthrough.rs");
    for path in pages() {
        let has_commands = blocks(&read(&path)).iter().any(is_run);
        if has_commands && !named.contains(&format!("walk(\"{path}\")")) {
            walk(&path).await;
        }
    }
}

#[test]
fn every_block_of_commands_says_what_it_is() {
    let mut wrong = Vec::new();
    for path in pages() {
        let blocks = blocks(&read(&path));
        for block in &blocks {
            let language = block.info.split_whitespace().next().unwrap_or_default();
            let known = ["sh run", "sh install", "sh covered"].contains(&block.info.as_str());
            if ["sh", "bash", "console", "shell"].contains(&language) && !known {
                wrong.push(format!(
                    "{path}:{}: a block of commands is `sh run`, `sh install` or `sh covered`",
                    block.line
                ));
            }
            let is_usage = block.info == "text" && path == "docs/commands.md";
            if language != "sh"
                && !is_usage
                && block.text.lines().any(|line| line.starts_with("gov-handoff "))
            {
                wrong.push(format!("{path}:{}: commands stand in a block that nothing runs", block.line));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A command in the middle of a sentence is one, and its options are its own.
#[test]
fn every_command_that_a_sentence_names_exists() {
    let reference = read("docs/commands.md");
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for path in pages() {
        for command in read(&path).split("gov-handoff ").skip(1) {
            let command: String = command.chars().take_while(|c| !"`\n|#>;".contains(*c)).collect();
            let words: Vec<_> = command.split_whitespace().collect();
            let is_name = |word: &&str| word.chars().all(|c| c.is_ascii_lowercase());
            let Some(first) = words.first().filter(|word| is_name(word)) else { continue };
            // Prose about the product itself is not a command: it goes on without an option.
            if !reference.contains(&format!("\n## {first}\n")) {
                if words.iter().any(|word| word.starts_with("--")) {
                    wrong.push(format!("{path}: gov-handoff {command}"));
                }
                continue;
            }
            seen += 1;
            let section = reference.split(&format!("\n## {first}\n")).nth(1).unwrap_or_default();
            let section = section.split("\n## ").next().unwrap_or_default();
            for option in words.iter().filter_map(|word| word.strip_prefix("--")) {
                let option =
                    option.trim_end_matches([',', '.', ')', ']', ':']).split('=').next().unwrap_or_default();
                let general = [
                    "help",
                    "version",
                    "config",
                    "database-url",
                    "replication-url",
                    "slot",
                    "publication",
                    "log",
                ];
                if !option.is_empty()
                    && !general.contains(&option)
                    && !section.contains(&format!("--{option}"))
                {
                    wrong.push(format!("{path}: {first} has no --{option}: gov-handoff {command}"));
                }
            }
        }
    }
    assert!(seen > 60, "only {seen} commands were found");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn blocks_are_taken_out_of_lists_and_marks_are_read() {
    let page = "<!-- setup: migrated, 1 is an answer -->\n1. a\n\n   ```sh run\n   one \\\n       two\n   ```\n\n```toml\nx = 1\n```\n";
    let found = blocks(page);
    assert_eq!(found.len(), 2);
    assert_eq!(
        (found[0].info.as_str(), found[0].text.as_str(), found[0].line),
        ("sh run", "one \\\n    two\n", 5)
    );
    assert_eq!(setup(page), ("migrated", true));
    assert_eq!(setup("nothing"), ("empty", false));
    let good = "true\nfalse || echo no\n";
    let run = |text: &str, lenient| {
        let block = [Block { line: 1, info: "sh run".into(), text: text.into() }];
        session(&script("p", &block, lenient), "postgres://u@127.0.0.1:1/d").0
    };
    assert!(run(good, false) && !run("false\ntrue\n", false), "a command that fails ends its page");
    assert!(!run("gov-handoff status\n", true), "2 is no answer");
}
