//! What the docs tell people to type is understood: every `gglib` command by its parser, every piece of
//! `gglib.toml` by the reader of the configuration, every link by the file system.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use gglib_core::config::{self, Sources};

use crate::finding::Finding;
use crate::workspace::relative;

/// Where the pages are: these files, and everything below the book's sources.
const PAGES: &[&str] = &["README.md", "CHANGELOG.md"];
const BOOK: &str = "docs/src";

/// Checks every page of the workspace at `root`; answers with how many things there were to check.
pub fn check(root: &Path) -> Result<(usize, Vec<Finding>)> {
    let mut pages: Vec<PathBuf> =
        PAGES.iter().map(|page| root.join(page)).filter(|page| page.is_file()).collect();
    collect(&root.join(BOOK), &mut pages)?;
    let mut checked = 0;
    let mut findings = Vec::new();
    for page in pages {
        let text = fs::read_to_string(&page).with_context(|| format!("cannot read {}", page.display()))?;
        let place = relative(root, &page);
        let mut note = |line: usize, outcome: Option<Finding>| {
            checked += 1;
            findings.extend(outcome.map(|finding| finding.at(line)));
        };
        for block in blocks(&text) {
            match block.language {
                "sh" => block.commands().for_each(|(line, command)| note(line, misread(&place, &command))),
                "toml" => note(block.line, misconfigured(&place, &block.lines.join("\n"))),
                _ => {}
            }
        }
        for (line, target) in links(&text) {
            note(line, broken(&place, &page, target));
        }
    }
    Ok((checked, findings))
}

/// A fenced block of code.
struct Block<'a> {
    language: &'a str,
    /// Of its first line of code, from 1.
    line: usize,
    lines: Vec<&'a str>,
}

impl Block<'_> {
    /// Line and words of every `gglib` command in a block of shell.
    fn commands(&self) -> impl Iterator<Item = (usize, Vec<String>)> {
        self.lines.iter().enumerate().flat_map(move |(index, line)| {
            let pipeline = pipeline(line);
            pipeline.into_iter().filter_map(gglib).map(move |command| (self.line + index, command))
        })
    }
}

fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut blocks = Vec::new();
    let mut open: Option<Block<'_>> = None;
    for (index, line) in text.lines().enumerate() {
        match (line.trim().strip_prefix("```"), &mut open) {
            (Some(language), None) => open = Some(Block { language, line: index + 2, lines: Vec::new() }),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (None, Some(block)) => block.lines.push(line),
            (None, None) => {}
        }
    }
    blocks
}

/// The commands of one line of shell, as words: split at bars, cut at comments, quotes taken off.
fn pipeline(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | '|' | ';' | '&') => {
                commands.last_mut().expect("there is one from the start").extend(word.take());
                if c != ' ' {
                    commands.push(Vec::new());
                }
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    commands.last_mut().expect("there is one from the start").extend(word);
    commands
}

/// The words of a call of `gglib`, directly or by cargo, without variables before and redirections behind.
fn gglib(words: Vec<String>) -> Option<Vec<String>> {
    let mut words = words.into_iter().skip_while(|word| word.contains('=')).peekable();
    if words.peek()? == "cargo" {
        words.nth(1).filter(|task| task == "run")?;
        words.by_ref().find(|word| word == "gglib-cli")?;
        return Some(
            std::iter::once("gglib".to_owned()).chain(words.skip_while(|word| word == "--")).collect(),
        );
    }
    (words.peek()? == "gglib").then(|| words.take_while(|word| !word.starts_with(['<', '>'])).collect())
}

fn misread(place: &str, command: &[String]) -> Option<Finding> {
    use clap::error::ErrorKind::{DisplayHelp, DisplayVersion};
    let error = gglib_cli::command().try_get_matches_from(command).err()?;
    let is_answer = matches!(error.kind(), DisplayHelp | DisplayVersion);
    let problem = format!("`{}` is not understood", command.join(" "));
    let reason = error.to_string().lines().next().unwrap_or_default().to_owned();
    (!is_answer).then(|| Finding::in_file(place, problem, reason))
}

fn misconfigured(place: &str, text: &str) -> Option<Finding> {
    let env = |name: &str| (!name.starts_with("GGLIB_")).then(|| "set".to_owned());
    let sources = Sources { file: Some(("gglib.toml".as_ref(), text)), env: &env, flags: &[] };
    let errors = config::load(&sources).err()?;
    Some(Finding::in_file(place, "the snippet is not a valid gglib.toml", errors.to_string()))
}

/// Line and target of each link to a file, outside of code.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        for part in line.split("](").skip(1) {
            let target = part.split(')').next().unwrap_or_default();
            let file = target.split('#').next().unwrap_or_default();
            if !file.is_empty() && !file.contains(':') {
                links.push((index + 1, file));
            }
        }
    }
    links
}

fn broken(place: &str, page: &Path, target: &str) -> Option<Finding> {
    let exists = page.parent().is_some_and(|directory| directory.join(target).exists());
    let problem = format!("links to `{target}`, which does not exist");
    (!exists).then(|| Finding::in_file(place, problem, "correct the link, relative to the page"))
}

fn collect(directory: &Path, pages: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(directory).with_context(|| format!("cannot list {}", directory.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, pages)?;
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_is_found_at_its_line() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join(BOOK)).unwrap();
        let page = "# Page\n\n[here](page.md#page) [gone](gone.md) [out](https://host/x.md)\n\n\
                    ```sh\nls | grep x   # gglib nonsense\nA=b gglib q \"one | two\" --no-retry < file\n\
                    cat x | gglib question\ncargo run --release -p gglib-cli -- up --yes\ncargo install --path gglib-cli\n```\n\n\
                    ```toml\n[server]\nlisten = \"127.0.0.1:1\"\n```\n\n```toml\n[sever]\n```\n\n\
                    ```text\n[a](b.md)\n```\n";
        fs::write(root.path().join(BOOK).join("page.md"), page).unwrap();

        let (checked, findings) = check(root.path()).unwrap();
        let found: Vec<_> =
            findings.iter().map(|found| (found.line.unwrap(), found.problem.as_str())).collect();
        assert_eq!(checked, 7);
        assert_eq!(
            found,
            [
                (8, "`gglib question` is not understood"),
                (19, "the snippet is not a valid gglib.toml"),
                (3, "links to `gone.md`, which does not exist"),
            ]
        );
    }

    #[test]
    fn a_line_of_shell_is_split_like_a_shell_does() {
        let words = |line: &str| {
            pipeline(line).into_iter().filter_map(gglib).map(|words| words.join("·")).collect::<Vec<_>>()
        };
        assert_eq!(
            words("git diff | gglib q 'a \"b\"' >x; gglib status"),
            ["gglib·q·a \"b\"", "gglib·status"]
        );
        assert_eq!(words("echo gglib"), [""; 0]);
    }
}
