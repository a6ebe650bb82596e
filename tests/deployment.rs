//! What `docker/` ships. An image is not built here and no cluster is there, so these files are parsed, held against the program
//! and linted by the tools that are installed; what was left out says so. The roles of compose.yaml are tried on a real server.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use gov_handoff::config;
use serde_json::Value;

use crate::support::{
    Daemon, Database, TemporaryFile, cli, connect, done, options, private_cluster, program,
};

/// A database that nobody asks.
const NOWHERE: &str = "postgres://u@127.0.0.1:1/d";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).to_owned()
}

fn file(path: &str) -> String {
    let path = root().join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The documents of a file of YAML, anchors and merges resolved.
fn yaml(path: &str) -> Vec<Value> {
    use serde::Deserialize;
    let text = file(path);
    let documents = serde_yaml_ng::Deserializer::from_str(&text).map(|document| {
        let mut value = serde_yaml_ng::Value::deserialize(document).unwrap_or_else(|e| panic!("{path}: {e}"));
        // What is merged may itself merge.
        for _ in 0..3 {
            value.apply_merge().unwrap_or_else(|e| panic!("{path}: {e}"));
        }
        serde_json::to_value(value).unwrap_or_else(|e| panic!("{path}: {e}"))
    });
    documents.collect()
}

fn compose() -> Value {
    yaml("docker/compose.yaml").remove(0)
}

fn kubernetes(kind: &str) -> Value {
    let documents = yaml("docker/kubernetes.yaml");
    documents.into_iter().find(|document| document["kind"] == kind).unwrap_or_else(|| panic!("no {kind}"))
}

/// Runs a tool that may not be installed; `None` if it is not.
fn tool(name: &str, arguments: &[&str]) -> Option<(bool, String)> {
    let Ok(ran) = Command::new(name).args(arguments).output() else {
        eprintln!("SKIPPED: {name} is not installed; what it would have checked was not");
        return None;
    };
    let said = String::from_utf8_lossy(&ran.stdout).into_owned() + &String::from_utf8_lossy(&ran.stderr);
    Some((ran.status.success(), said))
}

/// The words of a JSON list.
fn words(list: &Value) -> Vec<&str> {
    list.as_array().unwrap_or_else(|| panic!("{list} is no list")).iter().filter_map(Value::as_str).collect()
}

/// The instructions of the Dockerfile, continued lines put together.
fn instructions() -> Vec<String> {
    let text = file("docker/Dockerfile");
    let lines =
        text.lines().filter(|line| !line.trim_start().starts_with('#')).collect::<Vec<_>>().join("\n");
    lines.replace("\\\n", " ").lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
}

#[test]
fn the_image_is_small_not_roots_labelled_and_tells_its_health() {
    let all = instructions();
    let last = all.iter().rposition(|line| line.starts_with("FROM ")).expect("a last stage");
    let (build, image) = all.split_at(last);
    assert!(image[0].ends_with("-slim"), "{}", image[0]);
    // A program that was linked with a newer C library does not start with an older one.
    let debian = image[0].trim_start_matches("FROM debian:").trim_end_matches("-slim");
    assert!(build[0].contains(debian), "{} and {}", build[0], image[0]);
    let of = |word: &str| image.iter().filter_map(|line| line.strip_prefix(word)).collect::<Vec<_>>();
    let user = of("USER ");
    let numeric = |user: &&str| user.split(':').all(|id| id.parse::<u32>().is_ok_and(|id| id > 0));
    assert!(user.len() == 1 && user.iter().all(numeric), "Kubernetes cannot see that {user:?} is not root");
    let labels = of("LABEL ").join(" ");
    for label in ["title", "description", "version", "revision", "licenses"] {
        assert!(labels.contains(&format!("org.opencontainers.image.{label}=")), "no label {label}");
    }
    assert_eq!(of("ENTRYPOINT "), [r#"["gov-handoff"]"#], "a shell in between would swallow SIGTERM");
    assert!(of("HEALTHCHECK ")[0].contains(r#"["gov-handoff", "health""#));
    // Only what was built leaves the first stage, and the licence.
    let copied: Vec<_> =
        of("COPY ").iter().filter(|line| !line.starts_with("--from=build ")).copied().collect();
    assert!(copied.iter().all(|line| line.starts_with("LICENSE ")), "{copied:?}");
    assert!(image.iter().all(|line| !line.contains("ADD ")), "ADD fetches and unpacks");
}

/// What a build needs is in its context, and nothing else is.
#[test]
fn the_context_of_the_image_holds_what_the_build_reads_and_nothing_else() {
    let ignored = file(".dockerignore");
    let lines: Vec<_> = ignored.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(lines.first(), Some(&"*"), "everything is left out but what is named");
    let let_in: BTreeSet<_> = lines.iter().filter_map(|line| line.strip_prefix('!')).collect();
    let copied: BTreeSet<String> = instructions()
        .iter()
        .filter_map(|line| line.strip_prefix("COPY "))
        .filter(|line| !line.starts_with("--from"))
        .flat_map(|line| {
            let mut parts: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
            parts.pop();
            parts
        })
        .collect();
    assert_eq!(copied, let_in.iter().map(|name| (*name).to_owned()).collect());
    assert!(copied.iter().all(|name| root().join(name).exists()), "{copied:?}");
    // What the sources read of other folders while they are compiled.
    let mut folders = vec![root().join("src")];
    let mut read = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            for included in text.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
                let target = path.with_file_name(included);
                let target = target.canonicalize().unwrap_or_else(|e| panic!("{}: {e}", target.display()));
                let inside = target.strip_prefix(root().canonicalize().expect("a root")).expect("ours");
                let top =
                    inside.components().next().expect("a name").as_os_str().to_string_lossy().into_owned();
                assert!(copied.contains(&top), "{} reads {}", path.display(), inside.display());
                read += 1;
            }
        }
    }
    assert!(read > 100, "only {read} files are read");
}

#[test]
fn every_version_that_is_written_is_this_one() {
    let version = env!("CARGO_PKG_VERSION");
    assert!(instructions().contains(&format!("ARG VERSION={version}")));
    let image = format!("gov-handoff:{version}");
    let named = file("docker/compose.yaml") + &file("docker/kubernetes.yaml") + &file("docker/Dockerfile");
    let wrong: Vec<_> = named
        .split("gov-handoff:")
        .skip(1)
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        .filter(|rest| !rest.starts_with(version))
        .collect();
    assert!(named.contains(&image) && wrong.is_empty(), "{wrong:?}");
}

/// Settings that a file names, each of which must exist.
#[test]
fn every_setting_that_is_given_exists() {
    for path in
        ["docker/Dockerfile", "docker/compose.yaml", "docker/kubernetes.yaml", "docker/gov-handoff.service"]
    {
        let text = file(path);
        let end =
            |rest: &str| rest.find(|c: char| !(c.is_ascii_uppercase() || c == '_')).unwrap_or(rest.len());
        let named: BTreeSet<_> = text.split("GOV_HANDOFF_").skip(1).map(|rest| &rest[..end(rest)]).collect();
        let known = |name: &str| !config::help(&name.to_lowercase()).is_empty();
        let unknown: Vec<_> = named.iter().filter(|name| !name.is_empty() && !known(name)).collect();
        assert!(!named.is_empty() && unknown.is_empty(), "{path}: {unknown:?}");
    }
}

#[test]
fn compose_sets_up_in_order_and_only_the_server_knows_its_superuser() {
    let compose = compose();
    let services = compose["services"].as_object().expect("services");
    for (name, service) in services {
        let environment = service["environment"].to_string();
        assert!(name == "postgres" || !environment.contains("POSTGRES_PASSWORD"), "{name} is a superuser");
        assert!(!["postgres", "\"\""].contains(&service["environment"]["PGUSER"].as_str().unwrap_or("-")));
        // Every file that is mounted is there.
        for mount in service["volumes"].as_array().unwrap_or(&Vec::new()).iter().filter_map(Value::as_str) {
            let from = mount.split(':').next().expect("a place");
            let there = !from.starts_with('.') || root().join("docker").join(from).exists();
            assert!(there, "{name}: {from} is not there");
        }
    }
    let after = |name: &str, before: &str| services[name]["depends_on"][before]["condition"].clone();
    assert_eq!(after("migrate", "postgres"), "service_healthy");
    assert_eq!(after("grants", "migrate"), "service_completed_successfully");
    let daemons: Vec<_> = services.keys().filter(|name| name.starts_with("daemon")).collect();
    assert_eq!(daemons.len(), 2, "one writes, the other stands by");
    let scraped = yaml("docker/prometheus/prometheus.yml").remove(0);
    let scraped = words(&scraped["scrape_configs"][0]["static_configs"][0]["targets"]);
    let mut listening = Vec::new();
    for daemon in daemons {
        assert_eq!(after(daemon, "grants"), "service_completed_successfully");
        assert_eq!(services[daemon]["environment"]["PGUSER"], "gov_handoff");
        // The pages are on loopback: the one who reads them shares the network.
        assert_eq!(services[daemon]["network_mode"], "service:prometheus");
        assert_eq!(services[daemon]["read_only"], true);
        listening.push(services[daemon]["environment"]["GOV_HANDOFF_LISTEN"].as_str().expect("an address"));
    }
    assert_eq!(scraped, listening);
    let asks = words(&services["daemon-2"]["healthcheck"]["test"]).join(" ");
    assert!(asks.contains(listening[1]), "{asks}");
}

/// The commands that the files have run: each is known to the program.
#[tokio::test]
async fn every_command_of_a_probe_or_a_service_is_one() {
    let deployment = kubernetes("Deployment");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let mut probes = Vec::new();
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        probes.push(words(&container[probe]["exec"]["command"]).iter().map(|w| (*w).to_owned()).collect());
    }
    let image = instructions();
    let health = image.iter().find(|line| line.starts_with("HEALTHCHECK")).expect("a check");
    let health = &health[health.find('[').expect("a list")..];
    probes.push(serde_json::from_str::<Vec<String>>(health).expect("a list of words"));
    for probe in probes {
        assert_eq!(probe[0], "gov-handoff", "{probe:?}");
        // Nobody listens at a port that no test uses, so a probe that is understood says exactly that.
        let probe: Vec<_> = probe[1..].iter().map(|word| word.replace(":9642", ":1")).collect();
        let ran = cli(NOWHERE, &probe.iter().map(String::as_str).collect::<Vec<_>>()).await;
        assert!(ran.code == 2 && ran.err.contains("cannot be asked"), "{probe:?}: {}{}", ran.out, ran.err);
    }
    let services = compose()["services"].clone();
    let commands =
        ["migrate", "daemon-1", "daemon-2", "operator"].map(|name| services[name]["command"].clone());
    let manifests = [
        container["args"].clone(),
        kubernetes("Job")["spec"]["template"]["spec"]["containers"][0]["args"].clone(),
    ];
    for command in commands.iter().chain(&manifests) {
        let command = command.as_str().map_or_else(|| words(command).join(" "), str::to_owned);
        let help = cli(NOWHERE, &[command.as_str(), "--help"]).await;
        assert_eq!(help.code, 0, "{command}: {}", help.err);
    }
}

#[test]
fn the_manifest_runs_two_confined_instances_and_holds_no_secret() {
    let documents = yaml("docker/kubernetes.yaml");
    for document in &documents {
        for key in ["apiVersion", "kind"] {
            assert!(document[key].is_string(), "{document} has no {key}");
        }
        assert!(document["metadata"]["name"].is_string(), "{document} has no name");
        assert_ne!(document["kind"], "Secret", "a secret does not stand in a file of the tree");
    }
    let deployment = kubernetes("Deployment");
    assert_eq!(deployment["spec"]["replicas"], 2);
    let label = &deployment["spec"]["template"]["metadata"]["labels"];
    assert_eq!(&deployment["spec"]["selector"]["matchLabels"], label);
    assert_eq!(&kubernetes("PodDisruptionBudget")["spec"]["selector"]["matchLabels"], label);
    assert_ne!(
        &kubernetes("Job")["spec"]["template"]["metadata"]["labels"],
        label,
        "the budget would count the job"
    );
    for pod in [&deployment, &kubernetes("Job")].map(|of| of["spec"]["template"]["spec"].clone()) {
        assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
        assert_eq!(pod["securityContext"]["runAsUser"], 10001);
        assert_eq!(pod["automountServiceAccountToken"], false);
        let container = &pod["containers"][0];
        let confined = &container["securityContext"];
        assert_eq!(confined["readOnlyRootFilesystem"], true);
        assert_eq!(confined["allowPrivilegeEscalation"], false);
        assert_eq!(words(&confined["capabilities"]["drop"]), ["ALL"]);
        assert!(container["resources"]["limits"]["memory"].is_string());
        let url = container["env"].as_array().expect("env").iter().find(|v| v["name"] == "DATABASE_URL");
        assert!(url.expect("a URL")["valueFrom"]["secretKeyRef"]["key"].is_string());
    }
    assert!(instructions().contains(&"USER 10001:10001".to_owned()), "the image has that user");
    // The daemon drains within ten seconds, and is not killed before.
    assert!(deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64() > Some(10));
}

#[test]
fn kubectl_reads_the_manifest() {
    let folder = std::env::temp_dir().join(format!("gov-handoff-kustomize-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("kustomization.yaml"), "resources: [kubernetes.yaml]\n").expect("a file");
    std::fs::write(folder.join("kubernetes.yaml"), file("docker/kubernetes.yaml")).expect("a file");
    let ran = tool("kubectl", &["kustomize", folder.to_str().expect("utf-8")]);
    std::fs::remove_dir_all(&folder).expect("the folder goes");
    if let Some((good, said)) = ran {
        assert!(good && said.matches("\nkind: ").count() >= 4, "{said}");
    }
}

#[test]
fn systemd_accepts_the_unit_and_finds_it_confined() {
    let unit = file("docker/gov-handoff.service");
    for line in
        ["Type=notify", "WatchdogSec=60s", "NoNewPrivileges=yes", "ProtectSystem=strict", "DynamicUser=yes"]
    {
        assert!(unit.lines().any(|there| there == line), "no {line}");
    }
    // What the verification looks for on this machine: the built program, and no man page.
    let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
    let here = unit
        .replace(command, &command.replace("/usr/local/bin/gov-handoff", env!("CARGO_BIN_EXE_gov-handoff")))
        .replace("Documentation=man:gov-handoff(1)\n", "");
    let unit = TemporaryFile::new("unit.service", &here);
    if let Some((good, said)) = tool("systemd-analyze", &["verify", "--man=no", unit.path()]) {
        assert!(good && !said.contains("unit.service:"), "{said}");
    }
    // Up to 10.0, the less the better; a service without any of this has 9.6.
    if let Some((good, said)) =
        tool("systemd-analyze", &["security", "--offline=yes", "--threshold=20", unit.path()])
    {
        assert!(good, "{said}");
    }
}

/// The shell scripts are read by a shell at least.
#[test]
fn the_scripts_are_read_by_a_shell() {
    let compose = compose();
    let grants = words(&compose["services"]["grants"]["command"])[2].replace("$$", "$");
    for (what, script) in [("bootstrap.sh", file("docker/postgres/bootstrap.sh")), ("grants", grants)] {
        let script = TemporaryFile::new("script.sh", &script);
        let (good, said) = tool("sh", &["-n", script.path()]).expect("a shell");
        assert!(good, "{what}: {said}");
    }
}

/// What psql puts in the place of a variable.
fn with_passwords(script: &str) -> String {
    ["owner", "daemon", "operator"]
        .iter()
        .fold(script.to_owned(), |script, of| script.replace(&format!(":'{of}_password'"), "'a''b \"c'"))
}

/// The steps of compose.yaml, each as the role that it has there, on a server of the same settings.
#[tokio::test(flavor = "multi_thread")]
async fn the_roles_of_compose_suffice_for_what_they_do_and_for_no_more() {
    let cluster = private_cluster(options()).await;
    cluster.create_database("registry", None).await.expect("a database");
    let url = cluster.url("registry");
    let superuser = connect(&url).await;
    superuser
        .batch_execute(&with_passwords(&file("docker/postgres/bootstrap.sql")))
        .await
        .expect("bootstrap");

    let of = |role: &str| url.replacen("postgres@", &format!("{role}@"), 1);
    let owner = of("registry_owner");
    done(&owner, &["migrate"]).await;
    let client = connect(&owner).await;
    for script in ["replication/roles.sql", "replication/publication.sql", "docker/postgres/grants.sql"] {
        client.batch_execute(&file(script)).await.unwrap_or_else(|e| panic!("{script}: {e:?}"));
    }
    // A second `up`: everything is there, and nothing fails.
    done(&owner, &["migrate"]).await;
    for script in ["replication/roles.sql", "docker/postgres/grants.sql"] {
        client.batch_execute(&file(script)).await.unwrap_or_else(|e| panic!("{script} again: {e:?}"));
    }

    let operator = of("registry_operator");
    done(&operator, &["types", "activate", "--all"]).await;
    let db = Database::at("registry", of("gov_handoff")).await;
    let mut daemon = Daemon::eager(&db.url, "auto", &[]);
    daemon.captures(&url, "stream").await;
    client
        .batch_execute("insert into birth_registry (entity_code, collection_name) values ('a', 'c')")
        .await
        .expect("a birth");
    let handed = "select count(*) = 1 from event_outbox where event_type like '%object_born'";
    crate::support::until_true(&client, handed).await;
    let status = cli(&operator, &["status"]).await;
    assert!([0, 2].contains(&status.code) && !status.out.is_empty(), "{}{}", status.out, status.err);
    // The daemon writes by gates alone, and nobody but the first start of the server was a superuser.
    let written = db.client.batch_execute("insert into birth_registry (entity_code) values ('b')").await;
    assert!(written.is_err(), "the daemon's role writes a source");
    let powers = "select count(*) from pg_roles where rolsuper and rolname in ('registry_owner', 'gov_handoff', 'registry_operator')";
    let count: i64 = superuser.query_one(powers, &[]).await.expect("roles").get(0);
    assert_eq!(count, 0);
    let refused = cli(&of("gov_handoff"), &["types", "deactivate", "--all"]).await;
    assert_ne!(refused.code, 0, "the daemon's role does an operator's work");
    assert_eq!(daemon.sigterm().await, 0, "{}", daemon.log());
}

/// Every setting that the unit, the image and the manifest give is taken by the program as it stands there.
#[test]
fn the_settings_of_the_image_are_taken() {
    let image = instructions();
    let set: Vec<_> = image.iter().filter_map(|line| line.strip_prefix("ENV ")?.split_once('=')).collect();
    assert!(!set.is_empty());
    let set = [&set[..], &[("DATABASE_URL", NOWHERE)]].concat();
    let out = program(&["config", "--json"], &set).output().expect("the program starts");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let shown: Value = serde_json::from_slice(&out.stdout).expect("json");
    assert_eq!(shown["listen"], "127.0.0.1:9642");
}
