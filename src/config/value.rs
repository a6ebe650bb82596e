//! The types of settings: how each is written and shown, and the checks that several share.

use super::words::{check_slot_name, check_token, parse_intent, parse_listen, parse_span, parse_windows};
use crate::core::mode::Intent;
use crate::core::pace::OffPeakWindow;
use std::net::SocketAddr;
use std::time::Duration;

/// A type of setting. An error says which values are accepted.
pub trait SettingValue: Sized {
    fn parse(text: &str) -> Result<Self, String>;
    fn show(&self) -> String;
}

/// A URL that may contain a password. It is parsed later, together with the environment, and never shown.
#[derive(Clone)]
pub struct Url(pub String);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Text,
    Json,
}

impl std::fmt::Debug for Url {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Url(…)")
    }
}

impl SettingValue for Url {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(Self(text.to_owned()))
    }

    fn show(&self) -> String {
        "(given)".to_owned()
    }
}

impl<T: SettingValue> SettingValue for Option<T> {
    fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() { Ok(None) } else { T::parse(text).map(Some) }
    }

    fn show(&self) -> String {
        self.as_ref().map_or_else(|| "(none)".to_owned(), SettingValue::show)
    }
}

impl SettingValue for String {
    fn parse(text: &str) -> Result<Self, String> {
        Ok(text.to_owned())
    }

    fn show(&self) -> String {
        self.clone()
    }
}

impl SettingValue for bool {
    fn parse(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| "it is true or false".to_owned())
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

macro_rules! whole_numbers {
    ($($type:ty)*) => {$(
        impl SettingValue for $type {
            fn parse(text: &str) -> Result<Self, String> {
                text.parse().map_err(|e| format!("expected a whole number: {e}"))
            }

            fn show(&self) -> String {
                self.to_string()
            }
        }
    )*};
}
whole_numbers!(u8 u64 usize);

impl SettingValue for Duration {
    fn parse(text: &str) -> Result<Self, String> {
        parse_span(text)
    }

    fn show(&self) -> String {
        format!("{}ms", self.as_millis())
    }
}

impl SettingValue for Intent {
    fn parse(text: &str) -> Result<Self, String> {
        parse_intent(text).ok_or_else(|| "it is one of auto, stream, poll".to_owned())
    }

    fn show(&self) -> String {
        self.name().to_owned()
    }
}

impl SettingValue for LogFormat {
    fn parse(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err("it is text or json".to_owned()),
        }
    }

    fn show(&self) -> String {
        match self {
            Self::Text => "text",
            Self::Json => "json",
        }
        .to_owned()
    }
}

/// A word that is never shown.
#[derive(Clone)]
pub struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl SettingValue for Secret {
    fn parse(text: &str) -> Result<Self, String> {
        // The text itself is not repeated: it would stand in a log.
        check_token(text).map(|()| Self(text.to_owned()))
    }

    fn show(&self) -> String {
        "(given)".to_owned()
    }
}

/// The workers that `run` runs; `None` for all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerNames(pub Option<Vec<String>>);

impl SettingValue for WorkerNames {
    fn parse(text: &str) -> Result<Self, String> {
        let names: Vec<_> = text.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
        match names[..] {
            [] => Err("it is all, or names of workers with commas between".to_owned()),
            ["all"] => Ok(Self(None)),
            _ => Ok(Self(Some(names.into_iter().map(str::to_owned).collect()))),
        }
    }

    fn show(&self) -> String {
        self.0.as_ref().map_or_else(|| "all".to_owned(), |names| names.join(","))
    }
}

impl SettingValue for SocketAddr {
    fn parse(text: &str) -> Result<Self, String> {
        parse_listen(text)
    }

    fn show(&self) -> String {
        self.to_string()
    }
}

impl SettingValue for Vec<OffPeakWindow> {
    fn parse(text: &str) -> Result<Self, String> {
        parse_windows(text)
    }

    fn show(&self) -> String {
        self.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }
}

pub fn between<T: PartialOrd + std::fmt::Display>(least: T, most: T) -> impl Fn(&T) -> Result<(), String> {
    move |value| {
        if *value >= least && *value <= most {
            return Ok(());
        }
        Err(format!("it must lie between {least} and {most}"))
    }
}

pub fn at_least(least: &'static str, why: &'static str) -> impl Fn(&Duration) -> Result<(), String> {
    move |value| {
        if *value >= parse_span(least)? { Ok(()) } else { Err(format!("{why}: give {least} or more")) }
    }
}

pub fn at_most(most: &'static str, why: &'static str) -> impl Fn(&Duration) -> Result<(), String> {
    move |value| {
        if *value <= parse_span(most)? { Ok(()) } else { Err(format!("{why}: give {most} or less")) }
    }
}

/// A budget that some slot can keep.
#[allow(clippy::trivially_copy_pass_by_ref)] // The shape of a check.
pub fn worth_a_slot(megabytes: &u64) -> Result<(), String> {
    if *megabytes > 0 { Ok(()) } else { Err("any slot exceeds that at once: give 1 or more".to_owned()) }
}

pub fn slot_name(name: &Option<String>) -> Result<(), String> {
    name.as_deref().map_or(Ok(()), check_slot_name)
}
