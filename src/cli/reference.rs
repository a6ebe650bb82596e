//! The page of all commands, `docs/commands.md`, made from the same descriptions as the help and the man pages.

use crate::cli::args::Arguments;
use crate::cli::settings::SETTINGS;
use clap::{Arg, Command, CommandFactory};
use std::fmt::Write;

const INTRO: &str = "# Commands

This page is generated from the descriptions that `--help` and the man pages show (`gov-handoff man --markdown`). [Operating](operating.md)
says when to use which. Every command exits 0 when it is done, 1 when it found something, 2 when it could not run; the commands that say
more by their code say so below.
";

/// The page, in Markdown.
#[must_use]
pub fn page() -> String {
    let mut command = Arguments::command();
    // Fills in what a command takes over from those above it, and the names in the lines of usage.
    command.build();
    let mut page = INTRO.to_owned();
    page.push_str("\n## Settings of every command\n\n");
    page.push_str(&table(command.get_arguments().filter(|arg| arg.get_help_heading() == Some(SETTINGS))));
    for below in command.get_subcommands() {
        describe(below, 2, &mut page);
    }
    page
}

/// A command and those below it, which stand one heading deeper.
fn describe(command: &Command, depth: usize, page: &mut String) {
    if command.get_name() == "help" || command.is_hide_set() {
        return;
    }
    let name = command.get_bin_name().unwrap_or_else(|| command.get_name());
    let mut add = |text: &str| page.push_str(text);
    add(&format!("\n{} {}\n\n", "#".repeat(depth), name.trim_start_matches("gov-handoff ")));
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    add(&format!("{}\n", sentence(about.trim_end())));
    let below: Vec<_> = command.get_subcommands().filter(|below| below.get_name() != "help").collect();
    // Of a command that only holds others, these are shown.
    if below.is_empty() || !command.is_subcommand_required_set() {
        let usage = command.clone().render_usage().to_string();
        let usage: Vec<_> = usage.trim_start_matches("Usage:").lines().map(str::trim).collect();
        add(&format!("\n```text\n{}\n```\n", usage.join("\n")));
        let own = |arg: &&Arg| arg.get_help_heading() != Some(SETTINGS) && !arg.is_hide_set();
        let own: Vec<_> = command.get_arguments().filter(own).filter(|arg| !is_usual(arg)).collect();
        if !own.is_empty() {
            add(&format!("\n{}", table(own.into_iter())));
        }
    }
    if let Some(example) = command.get_after_help().map(ToString::to_string) {
        let example = example.trim().trim_start_matches("Example: ").to_owned();
        add(&format!("\nExample: `{example}`\n"));
    }
    for below in below {
        describe(below, depth + 1, page);
    }
}

fn is_usual(arg: &Arg) -> bool {
    ["help", "version"].contains(&arg.get_id().as_str())
}

fn table<'a>(args: impl Iterator<Item = &'a Arg>) -> String {
    let mut table = "| option | meaning |\n|---|---|\n".to_owned();
    for arg in args {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let default: Vec<_> =
            arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
        let default = match &default[..] {
            [] => String::new(),
            _ if !arg.get_action().takes_values() || help.contains("[default") => String::new(),
            values => format!(" [default: {}]", values.join(" ")),
        };
        // Writing to a text cannot fail.
        let _ = writeln!(table, "| `{}` | {}{} |", cell(&written(arg)), cell(&help), cell(&default));
    }
    table
}

/// An argument as it is written: `--source <S>`, `<ID>…`, `--json`.
fn written(arg: &Arg) -> String {
    let names = arg.get_value_names().unwrap_or_default();
    let names: Vec<_> = names.iter().map(|name| name.as_str().to_owned()).collect();
    let many = if arg.get_num_args().is_some_and(|range| range.max_values() > 1) { "…" } else { "" };
    match arg.get_long() {
        None => format!("<{}>{many}", names.join("> <")),
        Some(long) if arg.get_action().takes_values() => format!("--{long} <{}>{many}", names.join("> <")),
        Some(long) => format!("--{long}"),
    }
}

/// One line, without what ends a cell.
fn cell(text: &str) -> String {
    text.split('\n').map(str::trim_end).collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

/// The first line of a description is written without its full stop.
fn sentence(about: &str) -> String {
    let (first, rest) = about.split_once('\n').unwrap_or((about, ""));
    let stop = if first.ends_with(['.', '?', ':']) { "" } else { "." };
    if rest.is_empty() { format!("{first}{stop}") } else { format!("{first}{stop}\n{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_commands_is_what_the_program_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/commands.md");
        if std::env::var_os("GOV_HANDOFF_WRITE_DOCS").is_some() {
            std::fs::write(path, page()).unwrap();
        }
        let there = std::fs::read_to_string(path).unwrap();
        assert!(there == page(), "docs/commands.md is out of date; `make docs` writes it");
    }

    #[test]
    fn every_command_and_each_of_its_options_stands_on_the_page() {
        let mut command = Arguments::command();
        command.build();
        let page = page();
        let mut commands = 0;
        let mut left: Vec<&Command> = command.get_subcommands().collect();
        while let Some(command) = left.pop() {
            if command.get_name() == "help" || command.is_hide_set() {
                continue;
            }
            commands += 1;
            let name = command.get_bin_name().unwrap().trim_start_matches("gov-handoff ").to_owned();
            assert!(page.contains(&format!("# {name}\n")), "{name}");
            for arg in command.get_arguments().filter(|arg| !is_usual(arg) && arg.get_long().is_some()) {
                assert!(page.contains(&format!("--{}", arg.get_long().unwrap())), "{name}: {}", arg.get_id());
            }
            left.extend(command.get_subcommands());
        }
        assert!(commands > 40, "only {commands} commands");
    }
}
