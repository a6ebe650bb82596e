//! How connection strings are read, and what must never happen.

mod files;

use super::*;
use proptest::prelude::*;

impl Target {
    fn tls(&self) -> Tls {
        self.secured.tls
    }

    fn host(&self) -> String {
        self.places[0].host.clone()
    }

    fn port(&self) -> u16 {
        self.places[0].port
    }

    fn password(&self) -> String {
        self.places[0].password.clone().unwrap_or_default()
    }
}

fn target(url: Option<&str>, env: &[(&str, &str)]) -> Result<Target> {
    given(url, Given::Above, env)
}

fn given(url: Option<&str>, given: Given, env: &[(&str, &str)]) -> Result<Target> {
    Target::parse(url, given, &env.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
}

#[test]
fn the_password_is_shown_nowhere() {
    let t = target(Some("postgres://u:hunter2@h:1/d"), &[]).unwrap();
    assert!(!format!("{t} {t:?}").contains("hunter2"));
    assert_eq!(t.password(), "hunter2");
}

#[test]
fn a_url_wins_over_the_usual_variables_which_fill_its_gaps() {
    let env = [("PGHOST", "elsewhere"), ("PGPASSWORD", "p"), ("PGDATABASE", "other")];
    let t = target(Some("postgres://u@h/d"), &env).unwrap();
    assert_eq!((t.host().as_str(), t.database(), t.password().as_str()), ("h", "d", "p"));
    let t = target(None, &[("PGUSER", "u"), ("PGPORT", "7"), ("PGDATABASE", "x")]).unwrap();
    assert_eq!((t.port(), t.database()), (7, "x"));
}

#[test]
fn the_usual_variables_win_over_the_urls_of_the_file_part_by_part() {
    let url = Some("postgres://u:secret@h:7/d?sslmode=require");
    let parts = |how, env: &[(&str, &str)]| {
        let t = given(url, how, env).unwrap();
        (t.host(), t.port(), t.user().to_owned(), t.password(), t.database().to_owned())
    };
    let all = |h: &str, port, u: &str, p: &str, d: &str| (h.into(), port, u.into(), p.into(), d.into());
    let file = Given::InFile;
    assert_eq!(parts(file, &[]), all("h", 7, "u", "secret", "d"));
    assert_eq!(parts(file, &[("PGHOST", "elsewhere")]), all("elsewhere", 7, "u", "secret", "d"));
    assert_eq!(parts(file, &[("PGPORT", "8"), ("PGDATABASE", "x")]), all("h", 8, "u", "secret", "x"));
    assert_eq!(parts(file, &[("PGPASSWORD", "other")]), all("h", 7, "u", "other", "d"));
    assert_eq!(parts(file, &[("PGUSER", "v")]), all("h", 7, "v", "", "d"), "another's password is not tried");
    assert_eq!(parts(file, &[("PGUSER", "u")]), all("h", 7, "u", "secret", "d"));
    assert_eq!(parts(file, &[("PGHOST", "")]), all("h", 7, "u", "secret", "d"), "empty is not given");
    let env = [("PGHOST", "elsewhere"), ("PGUSER", "v"), ("PGPASSWORD", "other"), ("PGSSLMODE", "disable")];
    assert_eq!(parts(Given::InFileForRole, &env), all("elsewhere", 7, "u", "secret", "d"));
    assert_eq!(parts(Given::Above, &env), all("h", 7, "u", "secret", "d"));
    assert_eq!(given(url, file, &env).unwrap().tls(), Tls::Disable);
    assert_eq!(given(url, Given::Above, &env).unwrap().tls(), Tls::Require);
}

#[test]
fn tls_words_are_ours() {
    let t = target(Some("postgres://u@h/d?sslmode=verify-full&sslrootcert=/ca.pem&application_name=x"), &[])
        .unwrap();
    assert_eq!((t.tls(), t.secured.root_cert), (Tls::VerifyFull, Some(PathBuf::from("/ca.pem"))));
    assert!(target(Some("postgres://u@h/d?sslmode=sometimes"), &[]).is_err());
}

#[test]
fn a_wrong_url_says_what_was_expected_and_keeps_the_secret() {
    let e = target(Some("postgres//u:hunter2@h/d"), &[]).unwrap_err().to_string();
    assert!(e.contains("expected postgres://") && !e.contains("hunter2"), "{e}");
}

#[test]
fn an_unreadable_url_names_the_key_but_no_piece_of_a_password() {
    let refused = |url: &str| target(Some(url), &[]).unwrap_err().to_string();
    for (url, named) in [
        ("postgres://u:hunter2@h/d?sslcert=/c.pem", "sslcert"),
        ("postgres://u:hunter2@h/d?sllmode=require", "unknown option sllmode"),
        ("postgres://u:hunter2@h:none/d", "`port`"),
        ("host=h password=hunter2 service=x", "service"),
    ] {
        let e = refused(url);
        assert!(e.contains(named) && !e.contains("hunter2"), "{url}: {e}");
    }
    for url in
        ["postgres//u:hunter2=b@h/d", "host=h password=a hunter2=b", "postgres://u@h/d?password=a&hunter2=b"]
    {
        let e = refused(url);
        assert!(e.contains("expected postgres://") && !e.contains("hunter2"), "{url}: {e}");
    }
}

#[test]
fn a_password_that_was_not_encoded_is_not_taken_for_a_host() {
    for how in [Given::Above, Given::InFile, Given::InFileForRole] {
        for password in ["hun@ter2", "hun@x/ter2", "hun@x:ter2", "hun?x=y@ter2"] {
            let url = format!("postgres://u:{password}@127.0.0.1:1/d");
            let e = given(Some(&url), how, &[]).unwrap_err().to_string();
            assert!(e.contains("%40") && !e.contains("ter2") && !e.contains("127.0.0.1"), "{e}");
        }
    }
    let t = target(Some("postgres://u:hun%40ter2@127.0.0.1:1/d?application_name=a@b"), &[]).unwrap();
    assert_eq!((t.password().as_str(), t.host().as_str()), ("hun@ter2", "127.0.0.1"));
}

#[test]
fn a_root_certificate_is_there_to_be_used() {
    let tls = |query: &str, env: &[(&str, &str)]| {
        target(Some(&format!("postgres://u@h/d?{query}")), env).unwrap().tls()
    };
    assert_eq!(tls("sslmode=require", &[]), Tls::Require);
    assert_eq!(tls("sslmode=require&sslrootcert=/ca.pem", &[]), Tls::VerifyCa);
    assert_eq!(tls("sslmode=require", &[("PGSSLROOTCERT", "/ca.pem")]), Tls::VerifyCa);
    assert_eq!(tls("sslmode=verify-ca&sslrootcert=/ca.pem", &[]), Tls::VerifyCa);
    assert_eq!(tls("sslmode=allow", &[]), Tls::Allow);
    for mode in ["verify-ca", "verify-full"] {
        let e = target(Some(&format!("postgres://u@h/d?sslmode={mode}")), &[]).unwrap_err().to_string();
        assert!(e.contains("no root certificate") && e.contains("sslrootcert=system"), "{e}");
    }
    // Without mandatory encryption, verifying a name does not help: an attacker refuses TLS.
    assert_eq!(tls("sslrootcert=/ca.pem", &[]), Tls::Prefer);
}

#[test]
fn a_question_mark_in_a_password_does_not_switch_tls_off() {
    let t = target(Some("postgres://u:a?b@host/db?sslmode=require"), &[]).unwrap();
    assert_eq!((t.tls(), t.password().as_str(), t.host().as_str()), (Tls::Require, "a?b", "host"));
    for password in
        ["a?sslmode=disable", "a?x=y&sslmode=disable&", "sslmode=disable", "a%3Fsslmode%3Ddisable"]
    {
        let t = target(Some(&format!("postgres://u:{password}@h/d?sslmode=verify-full&sslrootcert=/r")), &[])
            .unwrap();
        assert_eq!(t.tls(), Tls::VerifyFull, "{password}");
    }
    for words in [
        "host=h user=u password='a sslmode=disable' sslmode=require",
        r"host=h user=u password='it\'s sslmode=disable ' sslmode=require",
        r"host=h user=u password=a\ sslmode=disable sslmode = require",
        "sslmode='require' host=h user=u options='-c sslmode=disable'",
    ] {
        assert_eq!(target(Some(words), &[]).unwrap().tls(), Tls::Require, "{words}");
    }
}

#[test]
fn an_encoded_key_is_the_key_it_stands_for() {
    let t = target(Some("postgres://u@h/d?ssl%6dode=require&sslrootcert=%2Fa%20b%2fca.pem"), &[]).unwrap();
    assert_eq!((t.tls(), t.secured.root_cert), (Tls::VerifyCa, Some(PathBuf::from("/a b/ca.pem"))));
}

#[test]
fn a_contradiction_about_tls_is_refused() {
    let root = [("PGSSLROOTCERT", "/ca.pem")];
    for (url, env) in [
        ("postgres://u@h/d?sslmode=require&sslmode=disable", &[][..]),
        ("postgres://u@h/d?sslmode=require&ssl%6Dode=prefer", &[]),
        ("host=h user=u sslmode=require sslmode=disable", &[]),
        ("postgres://u@h/d?sslrootcert=/a&sslrootcert=/b&sslmode=require", &[]),
        ("postgres://u@h/d?sslmode=disable&sslrootcert=/ca.pem", &[]),
        ("postgres://u@h/d?sslrootcert=/ca.pem", &[("PGSSLMODE", "disable")]),
        ("postgres://u@h/d", &[("PGSSLMODE", "disable"), root[0]]),
    ] {
        let e = target(Some(url), env).unwrap_err().to_string();
        assert!(e.contains("contradicts itself"), "{url}: {e}");
    }
    for (url, env, tls) in [
        ("postgres://u@h/d?sslmode=require&sslmode=require", &[][..], Tls::Require),
        // The root certificate is for other connections.
        ("postgres://u@h/d?sslmode=disable", &root[..], Tls::Disable),
    ] {
        assert_eq!(target(Some(url), env).unwrap().tls(), tls, "{url}");
    }
    let e = given(Some("postgres://u@h/d?sslrootcert=/ca.pem"), Given::InFile, &[("PGSSLMODE", "disable")]);
    assert!(e.unwrap_err().to_string().contains("contradicts itself"));
}

#[test]
fn an_unknown_sslmode_is_refused_wherever_it_stands() {
    for (url, env) in [
        ("postgres://u@h/d?sslmode=Require", &[][..]),
        ("postgres://u@h/d?sslmode=", &[]),
        ("host=h user=u sslmode=on", &[]),
        ("postgres://u@h/d", &[("PGSSLMODE", "yes")]),
    ] {
        let e = target(Some(url), env).unwrap_err().to_string();
        assert!(e.contains("sslmode is `"), "{url}: {e}");
    }
    // Nor is an option ignored that is written as another key.
    assert!(target(Some("postgres://u@h/d?SSLMODE=require"), &[]).is_err());
    assert!(target(Some("postgres://h/d?user=me@corp&sslmode=require"), &[]).is_err());
}

#[test]
fn hosts_ports_sockets_and_options_are_what_they_were() {
    let t = target(Some("postgres://u@a:1,[::1]:2,c/d?options=-c%20work_mem%3D4MB&connect_timeout=3"), &[])
        .unwrap();
    let shown = |t: &Target| t.places().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown(&t), ["a:1", "::1:2", "c:5432"]);
    assert_eq!((t.options(), t.connect_timeout), (Some("-c work_mem=4MB"), Some(Duration::from_secs(3))));
    for url in [
        "postgres://u@%2Frun%2Fpg:7/d",
        "postgres://u@/d?host=/run/pg&port=7",
        "host=/run/pg port=7 user=u dbname=d",
    ] {
        let t = target(Some(url), &[]).unwrap();
        assert_eq!((t.host().as_str(), t.port(), t.database()), ("/run/pg", 7, "d"), "{url}");
    }
    let t = target(Some("host=a,b port=1,2 user=u"), &[]).unwrap();
    assert_eq!(shown(&t), ["a:1", "b:2"]);
    let t = target(Some("postgresql://u@h/d?load_balance_hosts=random&target_session_attrs=read-write"), &[]);
    assert_eq!(t.unwrap().host(), "h");
}

/// Every byte but letters and digits, as a careful client would.
fn encoded(text: &str) -> String {
    let plain = |b: &u8| b.is_ascii_alphanumeric();
    text.bytes().map(|b| if plain(&b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}

const MODES: [(&str, Tls); 4] =
    [("disable", Tls::Disable), ("prefer", Tls::Prefer), ("require", Tls::Require), ("allow", Tls::Allow)];

proptest! {
    #[test]
    fn what_is_encoded_into_a_url_comes_out_of_it(
        user in "[^\0]{1,20}", password in "[^\0]{0,20}", database in "[^\0]{1,20}", mode in 0..MODES.len(),
    ) {
        let (word, tls) = MODES[mode];
        let url = format!("postgres://{}:{}@h:7/{}?sslmode={word}", encoded(&user), encoded(&password), encoded(&database));
        let t = target(Some(&url), &[]).unwrap();
        prop_assert_eq!((t.user(), t.password(), t.database(), t.tls()), (&*user, password, &*database, tls));
        prop_assert_eq!((t.host(), t.port()), ("h".to_owned(), 7));
    }

    #[test]
    fn what_is_quoted_in_a_word_comes_out_of_it(
        user in "[^\0]{1,20}", password in "[^\0]{0,20}", database in "[^\0]{1,20}", mode in 0..MODES.len(),
    ) {
        let (word, tls) = MODES[mode];
        let quoted = |text: &str| format!("'{}'", text.replace('\\', r"\\").replace('\'', r"\'"));
        let text = format!(
            "host=h password={} sslmode={word} user = {} dbname={}", quoted(&password), quoted(&user), quoted(&database),
        );
        let t = target(Some(&text), &[]).unwrap();
        prop_assert_eq!((t.user(), t.password(), t.database(), t.tls()), (&*user, password, &*database, tls));
    }

    #[test]
    fn nothing_in_a_password_changes_tls(
        parts in prop::collection::vec(
            prop::sample::select(vec!["?", "&", "=", "sslmode=disable", "/", "'", " ", "%", "#", "x", ":"]), 0..8,
        ),
    ) {
        let password = parts.concat();
        let t = target(Some(&format!("postgres://u:{password}@h/d?sslmode=require")), &[]).unwrap();
        prop_assert_eq!((t.tls(), t.password(), t.host()), (Tls::Require, password, "h".to_owned()));
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in ".*", url in "postgres://.*") {
        let _ = (target(Some(&text), &[]), target(Some(&url), &[]));
    }
}

#[test]
fn every_option_that_cannot_be_honoured_is_refused_by_its_name() {
    for option in OPTIONS {
        let refused = match option.fate {
            options::Fate::Honoured => continue,
            options::Fate::Only(values) => {
                for value in values {
                    if !option.variable.is_empty() {
                        target(Some("postgres://u@h/d"), &[(option.variable, value)]).unwrap();
                    }
                }
                "hunter2"
            }
            options::Fate::Refused(_) => "hunter2",
        };
        if !option.variable.is_empty() {
            let e = target(Some("postgres://u@h/d"), &[(option.variable, refused)]).unwrap_err();
            assert!(e.to_string().starts_with(option.variable) && !e.to_string().contains("hunter2"), "{e}");
            assert_eq!(e.stable_code().id, "GH1003");
        }
        if !option.key.is_empty() {
            let url = format!("postgres://u@h/d?{}={refused}", option.key);
            let e = target(Some(&url), &[]).unwrap_err().to_string();
            assert!(e.starts_with(option.key) && !e.contains("hunter2"), "{e}");
        }
    }
}

#[test]
fn every_option_that_is_honoured_may_come_from_a_variable() {
    let env = [
        ("PGHOST", "a,b"),
        ("PGHOSTADDR", "192.0.2.1,192.0.2.2"),
        ("PGPORT", "1,2"),
        ("PGDATABASE", "d"),
        ("PGUSER", "u"),
        ("PGPASSWORD", "p"),
        ("PGOPTIONS", "-c work_mem=4MB"),
        ("PGAPPNAME", "mine"),
        ("PGCONNECT_TIMEOUT", "7"),
        ("PGTARGETSESSIONATTRS", "primary"),
        ("PGLOADBALANCEHOSTS", "random"),
        ("PGCHANNELBINDING", "prefer"),
        ("PGSSLMODE", "require"),
    ];
    let t = target(None, &env).unwrap();
    assert_eq!((t.database(), t.user(), t.options()), ("d", "u", Some("-c work_mem=4MB")));
    assert_eq!((t.application.as_deref(), t.connect_timeout), (Some("mine"), Some(Duration::from_secs(7))));
    assert_eq!((t.wanted, t.tls()), (WantedServer::Primary, Tls::Require));
    assert_eq!((t.host().as_str(), t.password().as_str()), ("a", "p"));
    let addresses: Vec<_> = t.places.iter().map(|p| (p.address.unwrap().to_string(), p.port)).collect();
    assert_eq!(addresses, [("192.0.2.1".to_owned(), 1), ("192.0.2.2".to_owned(), 2)]);
    let orders: std::collections::BTreeSet<_> = (0..64).map(|_| t.places()[0].host.clone()).collect();
    assert_eq!(orders.len(), 2, "places are tried in a random order");
    for (name, value) in [
        ("PGTARGETSESSIONATTRS", "writer"),
        ("PGLOADBALANCEHOSTS", "yes"),
        ("PGCHANNELBINDING", "on"),
        ("PGCONNECT_TIMEOUT", "0"),
        ("PGPORT", "x"),
        ("PGHOSTADDR", "localhost"),
    ] {
        assert!(target(Some("postgres://u@/d"), &[(name, value)]).is_err(), "{name}");
    }
}
