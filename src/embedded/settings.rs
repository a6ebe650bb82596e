//! The settings of a cluster, and the two configuration files that are made from them.

use std::fmt::Write;
use std::path::Path;

use super::Wanted;

/// How to start a [`Cluster`](super::Cluster). The defaults are those of a small replication source.
#[derive(Clone)]
pub struct ClusterOptions {
    pub version: Wanted,
    pub wal_level: String,
    pub max_connections: u32,
    pub max_wal_senders: u32,
    pub max_replication_slots: u32,
    /// On by default, because a demo or benchmark without it proves nothing. Tests that do not need it turn it off.
    pub fsync: bool,
    pub shared_buffers: String,
    /// The password of `postgres`. If it is set, TCP requires it by SCRAM, while the socket stays trusted.
    pub password: Option<String>,
    /// Any other settings; they override the ones above.
    pub settings: Vec<(String, String)>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            version: Wanted::Default,
            wal_level: "logical".to_owned(),
            max_connections: 100,
            max_wal_senders: 20,
            max_replication_slots: 20,
            fsync: true,
            shared_buffers: "128MB".to_owned(),
            password: None,
            settings: Vec::new(),
        }
    }
}

impl ClusterOptions {
    /// Lines for the end of `postgresql.conf`, where the last mention of a setting counts.
    pub(super) fn configuration(&self, socket_dir: &Path) -> String {
        let number = |value: u32| value.to_string();
        let own = [
            ("listen_addresses", "127.0.0.1".to_owned()),
            ("unix_socket_directories", socket_dir.display().to_string()),
            ("wal_level", self.wal_level.clone()),
            ("max_connections", number(self.max_connections)),
            ("max_wal_senders", number(self.max_wal_senders)),
            ("max_replication_slots", number(self.max_replication_slots)),
            ("fsync", if self.fsync { "on" } else { "off" }.to_owned()),
            ("shared_buffers", self.shared_buffers.clone()),
            // The same on every machine, instead of what initdb detects.
            ("timezone", "UTC".to_owned()),
            ("log_timezone", "UTC".to_owned()),
        ];
        let given = self.settings.iter().map(|(name, value)| (name.as_str(), value.clone()));
        own.into_iter().chain(given).fold(String::from("\n"), |mut lines, (name, value)| {
            let value = value.replace('\\', "\\\\").replace('\'', "''");
            let _ = writeln!(lines, "{name} = '{value}'");
            lines
        })
    }

    pub(super) fn host_based_authentication(&self) -> String {
        let tcp = if self.password.is_some() { "scram-sha-256" } else { "trust" };
        format!(
            "local all all trust\nlocal replication all trust\n\
             host all all 127.0.0.1/32 {tcp}\nhost replication all 127.0.0.1/32 {tcp}\n"
        )
    }
}

/// Percent-encodes characters that may not appear in a part of a URL.
pub(super) fn url_part(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn given_settings_come_last_and_are_quoted() {
        let settings = vec![("log_line_prefix".to_owned(), r"it's \ ".to_owned())];
        let text = ClusterOptions { settings, ..Default::default() }.configuration(Path::new("/t/s"));
        assert!(text.contains("\nwal_level = 'logical'\n"));
        assert!(text.ends_with("log_line_prefix = 'it''s \\\\ '\n"));
    }

    #[test]
    fn a_password_closes_tcp_but_not_the_socket() {
        let options = ClusterOptions { password: Some("x".to_owned()), ..Default::default() };
        let text = options.host_based_authentication();
        assert!(text.contains("local all all trust") && text.contains("127.0.0.1/32 scram-sha-256"));
        assert!(!ClusterOptions::default().host_based_authentication().contains("scram"));
    }

    #[test]
    fn url_parts_are_encoded() {
        assert_eq!(url_part("/tmp/a b@é"), "%2Ftmp%2Fa%20b%40%C3%A9");
    }
}
