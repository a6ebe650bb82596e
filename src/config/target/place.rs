//! Where a server is: a host or an address, a port, and the password that is used there.

use super::merge::Merged;
use crate::error::codes::{URL_CONTRADICTION, URL_UNREADABLE};
use crate::error::{Error, Result};
use std::net::IpAddr;

/// One of the places that a connection may be made to.
#[derive(Clone, PartialEq, Eq)]
pub struct ServerPlace {
    /// A name, an address, or the directory of a socket, which begins with a slash.
    pub host: String,
    /// Where to connect, if the name is not to be looked up.
    pub address: Option<IpAddr>,
    pub port: u16,
    pub password: Option<String>,
    /// Nobody named a host.
    pub by_default: bool,
}

impl ServerPlace {
    #[must_use]
    pub fn is_socket(&self) -> bool {
        self.host.starts_with('/')
    }
}

impl std::fmt::Display for ServerPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl std::fmt::Debug for ServerPlace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// The default: our daemon usually runs beside its server, or is told where it is.
const HOST: &str = "127.0.0.1";
const PORT: u16 = 5432;

/// Every place that the options name, in their order; at least one.
pub fn places(merged: &Merged) -> Result<Vec<ServerPlace>> {
    let list = |key: &str| -> Vec<String> {
        merged.get(key).map_or_else(Vec::new, |value| value.split(',').map(str::to_owned).collect())
    };
    let (hosts, addresses) = (list("host"), list("hostaddr"));
    let count = hosts.len().max(addresses.len()).max(1);
    if !hosts.is_empty() && !addresses.is_empty() && hosts.len() != addresses.len() {
        let told = format!(
            "{} hosts and {} addresses are given; give as many of each",
            hosts.len(),
            addresses.len()
        );
        return Err(Error::of(&URL_CONTRADICTION, told));
    }
    let ports = ports(merged, &list("port"), count)?;
    let place = |(n, port): (usize, u16)| {
        let address = addresses.get(n).filter(|text| !text.is_empty()).map(|text| text.parse::<IpAddr>());
        let address = address
            .transpose()
            .map_err(|_| Error::of(&URL_UNREADABLE, "hostaddr is not an IP address; give a name as host"))?;
        let host = hosts.get(n).filter(|host| !host.is_empty()).cloned();
        let by_default = host.is_none() && address.is_none();
        let host =
            host.or_else(|| address.map(|address| address.to_string())).unwrap_or_else(|| HOST.to_owned());
        Ok(ServerPlace { host, address, port, password: None, by_default })
    };
    ports.into_iter().enumerate().map(place).collect()
}

fn ports(merged: &Merged, texts: &[String], count: usize) -> Result<Vec<u16>> {
    // The value may be a piece of a password that was not encoded. What a variable holds is shown.
    let port = |text: &String| match text.parse() {
        _ if text.is_empty() => Ok(PORT),
        Ok(port) if port > 0 => Ok(port),
        _ => Err(match merged.variable("port") {
            Some(variable) => Error::config(format!("{variable} is `{text}`; it must be a port number")),
            None => Error::of(
                &URL_UNREADABLE,
                "the database URL cannot be read (`port` is not a number from 1 to 65535)",
            ),
        }),
    };
    let given = texts.iter().map(port).collect::<Result<Vec<_>>>()?;
    match given.len() {
        0 => Ok(vec![PORT; count]),
        1 => Ok(vec![given[0]; count]),
        n if n == count => Ok(given),
        // The hosts came from elsewhere, and replaced those that the ports were for.
        _ if !merged.same_origin("host", "port") => Ok(vec![given[0]; count]),
        n => Err(Error::of(
            &URL_CONTRADICTION,
            format!("{count} hosts and {n} ports are given; give as many of each"),
        )),
    }
}
