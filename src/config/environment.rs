//! The environment: which variables are ours, which are rejected, and which file it names.

use super::settings::SETTINGS;
use super::target::{OPTIONS, PLACES};
use super::words::nearest;
use crate::error::codes::UNKNOWN_SETTING;
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::PathBuf;

/// The prefix of our variables.
pub(super) const PREFIX: &str = "GOV_HANDOFF_";

/// The variables that are valid text. The others usually belong to other programs. One of ours that is not valid text
/// is rejected: ignoring it would mean running with another setting than was given.
pub(super) fn readable(vars: impl Iterator<Item = (OsString, OsString)>) -> Result<HashMap<String, String>> {
    let options = || OPTIONS.iter().map(|option| option.variable).chain(PLACES).chain(["DATABASE_URL"]);
    let is_read = |name: &str| name.starts_with(PREFIX) || options().any(|known| known == name);
    let mut env = HashMap::new();
    for (name, value) in vars {
        let Ok(name) = name.into_string() else { continue };
        match value.into_string() {
            Ok(value) => drop(env.insert(name, value)),
            Err(_) if is_read(&name) => {
                return Err(Error::config(format!("{name} is not valid UTF-8; set it again or unset it")));
            }
            Err(_) => {}
        }
    }
    Ok(env)
}

/// The file that the environment names. As with every variable, an empty value counts as not set.
pub(super) fn named_file(env: &HashMap<String, String>) -> Option<PathBuf> {
    env.get("GOV_HANDOFF_CONFIG").filter(|name| !name.is_empty()).map(PathBuf::from)
}

/// Rejects a variable with our prefix that is not a setting, as the file rejects an unknown key. It is misspelt, and
/// the daemon would run with another value than was given.
pub(super) fn refuse_unknown(env: &HashMap<String, String>) -> Result<()> {
    let mut ours: Vec<_> = env
        .iter()
        .filter(|(_, value)| !value.is_empty())
        .filter_map(|(name, _)| name.strip_prefix(PREFIX))
        .collect();
    ours.sort_unstable();
    let Some(name) = ours.into_iter().find(|name| !is_known(name)) else { return Ok(()) };
    let keys: Vec<_> = SETTINGS.iter().map(|s| s.name).collect();
    let (nearest, distance) = nearest(&name.to_lowercase(), &keys);
    let help = if distance <= 3 {
        format!("did you mean {PREFIX}{}?", nearest.to_uppercase())
    } else {
        format!("behind {PREFIX} stands one of CONFIG, {}", keys.join(", ").to_uppercase())
    };
    Err(Error::of(&UNKNOWN_SETTING, format!("{PREFIX}{name} is not a setting; {help}")))
}

/// Whether a variable is a setting, or has our prefix for another reason: for the embedded servers, for tests, or from
/// Kubernetes, which sets such variables in every container for a service named gov-handoff.
fn is_known(name: &str) -> bool {
    const OTHERS: [&str; 3] = ["CONFIG", "STALLED_AFTER", "PORT"];
    const FAMILIES: [&str; 6] = ["PG_", "FAILPOINT", "TEST_", "REQUIRE_", "SERVICE_", "PORT_"];
    OTHERS.contains(&name)
        || FAMILIES.iter().any(|family| name.starts_with(family))
        || SETTINGS.iter().any(|s| s.name.to_uppercase() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> HashMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_misspelt_variable_is_refused_by_name() {
        let refused = |name: &str| refuse_unknown(&environment(&[(name, "x")])).unwrap_err().to_string();
        let near = refused("GOV_HANDOFF_LEASE_TTLS");
        assert!(near.contains("GOV_HANDOFF_LEASE_TTLS") && near.contains("GOV_HANDOFF_LEASE_TTL?"), "{near}");
        let far = refused("GOV_HANDOFF_SOMETHING_ELSE");
        assert!(far.contains("DATABASE_URL") && far.contains("LOG_FORMAT"), "{far}");
        let fine = [
            ("GOV_HANDOFF_MODE", "poll"),
            ("GOV_HANDOFF_CONFIG", "f"),
            ("GOV_HANDOFF_PG_BIN", "b"),
            ("GOV_HANDOFF_FAILPOINT", "p"),
            ("GOV_HANDOFF_STALLED_AFTER", "1s"),
            ("GOV_HANDOFF_TEST_SEED", "1"),
            ("GOV_HANDOFF_REQUIRE_15", "1"),
            ("GOV_HANDOFF_SERVICE_HOST", "10.0.0.1"),
            ("GOV_HANDOFF_PORT", "tcp://10.0.0.1:9642"),
            ("GOV_HANDOFF_PORT_9642_TCP_ADDR", "10.0.0.1"),
            ("GOV_HANDOFF_UNSET", ""),
            ("GOV_HANDOFFS", "not ours"),
        ];
        refuse_unknown(&environment(&fine)).unwrap();
    }

    #[test]
    fn an_empty_name_of_a_file_is_none() {
        assert_eq!(named_file(&environment(&[("GOV_HANDOFF_CONFIG", "")])), None);
        assert_eq!(named_file(&environment(&[("GOV_HANDOFF_CONFIG", "f")])), Some(PathBuf::from("f")));
    }

    #[test]
    fn a_variable_that_is_no_text_is_refused_only_if_it_is_ours() {
        use std::os::unix::ffi::OsStringExt;
        let vars = |name: &str| {
            let odd = OsString::from_vec(vec![b'x', 0xff]);
            readable(
                [(OsString::from(name), odd.clone()), (odd, "y".into()), ("LANG".into(), "C".into())]
                    .into_iter(),
            )
        };
        assert_eq!(vars("LS_COLORS").unwrap(), HashMap::from([("LANG".to_owned(), "C".to_owned())]));
        for ours in ["DATABASE_URL", "PGHOST", "GOV_HANDOFF_MODE"] {
            assert!(vars(ours).unwrap_err().to_string().contains(ours));
        }
    }
}
