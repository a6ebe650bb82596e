//! Files that a connection string may name, or that libpq would look for.

use super::{given, target};
use crate::config::target::*;

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("gov-handoff-target-{}", Uuid::new_v4()));
        std::fs::create_dir_all(folder.join(".postgresql")).unwrap();
        Self(folder)
    }

    fn put(&self, name: &str, text: &str, mode: u32) -> String {
        use std::os::unix::fs::PermissionsExt;
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path.display().to_string()
    }

    fn home(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_service_fills_what_the_string_leaves_open_and_wins_over_variables() {
    let folder = Folder::new();
    let own =
        folder.put(".pg_service.conf", "[mine]\nhost=s\nport=7\nuser=su\npassword=sp\ndbname=sd\n", 0o644);
    folder.put("pg_service.conf", "[everybodys]\nhost=e\nuser=eu\n", 0o644);
    let parts = |t: Target| (t.host(), t.port(), t.user().to_owned(), t.password(), t.database().to_owned());
    let all = |h: &str, port, u: &str, p: &str, d: &str| (h.into(), port, u.into(), p.into(), d.into());
    let service = ("PGSERVICE", "mine");
    let file = ("PGSERVICEFILE", own.as_str());
    let of = |url, how, env: &[(&str, &str)]| parts(given(url, how, env).unwrap());
    assert_eq!(
        of(None, Given::Above, &[service, file, ("PGHOST", "v"), ("PGUSER", "vu")]),
        all("s", 7, "su", "sp", "sd")
    );
    assert_eq!(of(Some("postgres://u@h/d"), Given::Above, &[service, file]), all("h", 7, "u", "sp", "d"));
    assert_eq!(of(Some("service=mine port=8"), Given::Above, &[file]), all("s", 8, "su", "sp", "sd"));
    assert_eq!(
        of(Some("postgres:///?service=mine"), Given::Above, &[("HOME", folder.home())]),
        all("s", 7, "su", "sp", "sd")
    );
    // The variables win over our file, and so does the service that they name.
    assert_eq!(
        of(Some("postgres://u:p@h/d"), Given::InFile, &[service, file]),
        all("s", 7, "su", "sp", "sd")
    );
    assert_eq!(
        of(Some("postgres://u:p@h/d"), Given::InFileForRole, &[service, file]),
        all("s", 7, "u", "p", "sd")
    );
    let everybodys = [("PGSERVICE", "everybodys"), ("PGSYSCONFDIR", folder.home()), file];
    assert_eq!(of(None, Given::Above, &everybodys), all("e", 5432, "eu", "", "eu"));
    let e = given(None, Given::Above, &[("PGSERVICE", "no"), file]).unwrap_err();
    assert!(e.to_string().contains("`no` is defined nowhere") && e.stable_code().id == "GH1005", "{e}");
    let e = given(None, Given::Above, &[("PGSERVICE", "no"), ("PGSERVICEFILE", "/no/such")]).unwrap_err();
    assert!(e.to_string().contains("/no/such"), "{e}");
    let odd = folder.put("odd", "[mine]\nhost=h\nuser=u\nsslcrl=/x\n", 0o644);
    let e = given(None, Given::Above, &[service, ("PGSERVICEFILE", &odd)]).unwrap_err().to_string();
    assert!(e.contains("sslcrl") && e.contains("service `mine`"), "{e}");
}

#[test]
fn the_password_file_is_read_if_nobody_gives_a_password_and_refused_if_others_may_read_it() {
    let folder = Folder::new();
    let own = folder.put(".pgpass", "h:5432:d:u:hunter2\nb:*:*:*:of\\:b\n", 0o600);
    let home = [("HOME", folder.home())];
    assert_eq!(target(Some("postgres://u@h/d"), &home).unwrap().password(), "hunter2");
    assert_eq!(target(Some("postgres://u:given@h/d"), &home).unwrap().password(), "given");
    assert_eq!(target(Some("postgres://v@h/d"), &home).unwrap().password(), "");
    assert_eq!(target(Some("postgres://u@h/d"), &[("PGPASSFILE", &own)]).unwrap().password(), "hunter2");
    assert_eq!(target(Some(&format!("postgres://u@h/d?passfile={own}")), &[]).unwrap().password(), "hunter2");
    let t = target(Some("postgres://u@h,b,c/d"), &home).unwrap();
    let each: Vec<_> = t.places().into_iter().map(|p| p.password).collect();
    assert_eq!(each, [Some("hunter2".to_owned()), Some("of:b".to_owned()), None]);
    assert!(!format!("{t} {t:?} {:?}", t.places()).contains("hunter2"));
    for mode in [0o640, 0o604, 0o644] {
        folder.put(".pgpass", "h:5432:d:u:hunter2\n", mode);
        let e = target(Some("postgres://u@h/d"), &home).unwrap_err();
        assert!(e.to_string().contains("chmod 600") && e.stable_code().id == "GH1004", "{e}");
        // A file that is not needed is not looked at.
        assert_eq!(target(Some("postgres://u:given@h/d"), &home).unwrap().password(), "given");
    }
    let e = target(Some("postgres://u@h/d"), &[("PGPASSFILE", "/no/such")]).unwrap_err().to_string();
    assert!(e.contains("/no/such"), "{e}");
    assert_eq!(target(Some("postgres://u@h/d"), &[("PGPASSFILE", "/dev/null")]).unwrap().password(), "");
}

#[test]
fn certificates_and_keys_are_found_where_libpq_finds_them_and_a_key_is_private() {
    let folder = Folder::new();
    let home = [("HOME", folder.home())];
    let secured = |query: &str, env: &[(&str, &str)]| {
        target(Some(&format!("postgres://u@h/d?{query}")), env).map(|t| t.secured)
    };
    assert_eq!(secured("sslmode=require", &home).unwrap().tls, Tls::Require);
    let root = folder.put(".postgresql/root.crt", "", 0o644);
    let found = secured("sslmode=require", &home).unwrap();
    assert_eq!((found.tls, found.root_cert), (Tls::VerifyCa, Some(PathBuf::from(root))));
    assert_eq!(secured("sslmode=disable", &home).unwrap().tls, Tls::Disable);

    let certificate = folder.put(".postgresql/postgresql.crt", "", 0o644);
    assert!(secured("sslmode=require", &home).unwrap_err().to_string().contains("postgresql.key"));
    let key = folder.put(".postgresql/postgresql.key", "", 0o600);
    let pair = Some((PathBuf::from(&certificate), PathBuf::from(&key)));
    assert_eq!(secured("", &home).unwrap().client, pair);
    assert_eq!(secured("sslcertmode=disable", &home).unwrap().client, None);
    assert_eq!(secured("sslmode=disable", &home).unwrap().client, None);
    assert_eq!(secured("", &[("PGSSLCERT", &certificate), ("PGSSLKEY", &key)]).unwrap().client, pair);
    folder.put(".postgresql/postgresql.key", "", 0o644);
    let e = secured("", &home).unwrap_err();
    assert!(e.to_string().contains("chmod 600") && e.stable_code().id == "GH1006", "{e}");
    for alone in [("PGSSLCERT", &certificate), ("PGSSLKEY", &key)] {
        assert!(secured("", &[(alone.0, alone.1)]).is_err(), "{}", alone.0);
    }
}

#[test]
fn the_roots_of_the_system_are_taken_on_request_and_only_to_verify_the_name() {
    let folder = Folder::new();
    let bundle = folder.put("bundle.pem", "", 0o644);
    let env = [("SSL_CERT_FILE", bundle.as_str())];
    for query in ["sslrootcert=system", "sslrootcert=system&sslmode=verify-full"] {
        let t = target(Some(&format!("postgres://u@h/d?{query}")), &env).unwrap();
        assert_eq!((t.tls(), t.secured.root_cert), (Tls::VerifyFull, Some(PathBuf::from(&bundle))));
    }
    for mode in ["disable", "allow", "prefer", "require", "verify-ca"] {
        let e =
            target(Some(&format!("postgres://u@h/d?sslrootcert=system&sslmode={mode}")), &env).unwrap_err();
        assert!(e.to_string().contains("verify-full"), "{mode}: {e}");
    }
}
