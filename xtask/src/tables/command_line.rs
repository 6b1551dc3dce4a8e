//! The page on the command line, as clap knows it.

use clap::{Arg, Command};

use super::markdown::Page;

/// Renders the `gglib` command and everything below it.
pub fn render() -> String {
    let mut command = gglib_cli::command();
    command.build();
    let mut page = Page::new("Command line", "gglib-cli/src/args.rs");
    page.add("Every command and flag; `gglib COMMAND --help` says the same. What a command ends with is on the page of\n[exit codes](exit-codes.md).");
    page.add("## `gglib`");
    page.add(about(&command));
    page.add("All but `--version` belong to every command:");
    page.add(items(command.get_arguments()));
    describe_all(&mut command, &mut page);
    page.finish()
}

fn describe_all(command: &mut Command, page: &mut Page) {
    for command in command.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        if command.has_subcommands() {
            describe_all(command, page);
        } else {
            describe(command, page);
        }
    }
}

fn describe(command: &mut Command, page: &mut Page) {
    let usage = command.render_usage().to_string();
    page.add(format!("## `{}`", command.get_bin_name().unwrap_or(command.get_name())));
    page.add(about(command));
    page.add(format!("```text\n{}\n```", usage.trim_start_matches("Usage: ")));
    let own = items(command.get_arguments().filter(|argument| is_own(argument)));
    if !own.is_empty() {
        page.add(own);
    }
}

fn items<'a>(arguments: impl Iterator<Item = &'a Arg>) -> String {
    arguments.map(item).collect()
}

/// Whether an argument is this command's alone.
fn is_own(argument: &Arg) -> bool {
    !argument.is_hide_set() && !argument.is_global_set() && argument.get_id() != "help"
}

fn about(command: &Command) -> String {
    command.get_about().map(|about| format!("{about}.").replace("..", ".")).unwrap_or_default()
}

/// One argument as an item of a list: how it is written, what it does, where else its value may come from.
fn item(argument: &Arg) -> String {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let mut parts = vec![format!("- {}: {help}", written(argument))];
    if argument.get_action().takes_values() {
        let possible = argument.get_possible_values();
        let possible: Vec<_> = possible.iter().map(|value| format!("`{}`", value.get_name())).collect();
        parts.extend((!possible.is_empty()).then(|| format!("one of {}", possible.join(", "))));
        let defaults = argument.get_default_values().iter();
        parts.extend(defaults.map(|value| format!("default `{}`", value.to_string_lossy())));
    }
    parts.extend(argument.get_env().map(|variable| format!("environment `{}`", variable.to_string_lossy())));
    parts.join("; ") + "\n"
}

fn written(argument: &Arg) -> String {
    let names = argument.get_value_names().unwrap_or_default();
    let value = names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    if argument.is_positional() {
        return format!("`{value}`");
    }
    let short = argument.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
    let value = if argument.get_action().takes_values() { format!(" {value}") } else { String::new() };
    format!("{short}`--{}{value}`", argument.get_long().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_of_writing_an_argument_is_described() {
        let page = render();
        for line in [
            "- `--config FILE`: Configuration file; without it `gglib/gglib.toml` in the user's configuration \
             directory; environment `GGLIB_CONFIG`",
            "- `-y`, `--yes`: Agree to downloads without being asked",
            "- `--model NAME|FILE`: Model to use: a configured name, or a GGUF file to add",
            "- `PATH`: The GGUF file",
            "- `SHELL`: The shell; one of `bash`, `elvish`, `fish`, `powershell`, `zsh`",
        ] {
            assert!(page.lines().any(|present| present == line), "{line}\n{page}");
        }
        assert!(page.contains("\n## `gglib model add`\n"));
        assert!(!page.contains("__guard"));
    }
}
