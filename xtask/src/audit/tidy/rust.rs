//! The rules for one Rust file.

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};
use syn::Item;

use crate::finding::Finding;

/// The most code lines of one file: neither blank, nor comment or doc, nor in the test module that ends it.
const MAX_CODE_LINES: usize = 500;

/// Checks the file at `place`, whose content is `text`.
pub(super) fn check(place: &str, text: &str) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    if !text.starts_with("//!") {
        let remedy = "begin the file with `//!` and the one idea that it holds";
        findings.push(Finding::in_file(place, "has no module doc", remedy).at(1));
    }
    if place.ends_with("/mod.rs") {
        let remedy = "name it for its module: `name.rs` beside `name/`";
        findings.push(Finding::in_file(place, "is a `mod.rs`", remedy));
    }
    let lines = code_lines(text);
    if lines > MAX_CODE_LINES {
        let problem = format!("has {lines} code lines, more than {MAX_CODE_LINES}");
        findings.push(Finding::in_file(place, problem, "split it by ideas"));
    }
    let tokens: TokenStream = text.parse().map_err(|error| anyhow!("cannot parse {place}: {error}"))?;
    let mut forbidden = Vec::new();
    forbidden_tokens(tokens, &mut forbidden);
    findings.extend(
        forbidden
            .into_iter()
            .map(|(line, problem, remedy)| Finding::in_file(place, problem, remedy).at(line)),
    );
    Ok(findings)
}

fn code_lines(text: &str) -> usize {
    let code = text.lines().take(test_module_line(text).unwrap_or(usize::MAX));
    code.map(str::trim_start).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

/// The number of lines before the inline test module at the end of a file.
fn test_module_line(text: &str) -> Option<usize> {
    let file = syn::parse_file(text).ok()?;
    let Some(Item::Mod(module)) = file.items.last() else { return None };
    let is_test = module.ident == "tests" && module.content.is_some();
    is_test.then(|| module.mod_token.span.start().line - 1)
}

/// Line, problem and remedy of each forbidden macro or attribute; text in strings and comments is none.
fn forbidden_tokens(tokens: TokenStream, found: &mut Vec<(usize, String, &'static str)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Ident(ident) if is_punct(tokens.get(index + 1), '!') => {
                let name = ident.to_string();
                if name == "todo" || name == "unimplemented" {
                    let line = ident.span().start().line;
                    found.push((line, format!("uses `{name}!`"), "finish it, or leave it out"));
                }
            }
            TokenTree::Group(group) => {
                if group.delimiter() == Delimiter::Bracket && follows_pound(&tokens[..index]) {
                    found.extend(forbidden_attribute(group));
                }
                forbidden_tokens(group.stream(), found);
            }
            _ => {}
        }
    }
}

fn forbidden_attribute(attribute: &Group) -> Option<(usize, String, &'static str)> {
    let line = attribute.span_open().start().line;
    let names = names(attribute.stream());
    let has = |name: &str| names.iter().any(|found| found == name);
    match names.first()?.as_str() {
        "ignore" => Some((line, "ignores a test".into(), "make it pass, or assert what is wrong and say so")),
        "cfg_attr" if has("ignore") => Some((
            line,
            "ignores a test on some platforms".into(),
            "compile it where it can pass, with `cfg`",
        )),
        "allow" | "cfg_attr" if has("allow") && !has("reason") => {
            Some((line, "allows a lint without a reason".into(), "write `#[expect(lint, reason = \"…\")]`"))
        }
        _ => None,
    }
}

fn names(tokens: TokenStream) -> Vec<String> {
    let mut found = Vec::new();
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => found.push(ident.to_string()),
            TokenTree::Group(group) => found.extend(names(group.stream())),
            _ => {}
        }
    }
    found
}

/// Whether the tokens end in `#` or `#!`.
fn follows_pound(before: &[TokenTree]) -> bool {
    let mut backwards = before.iter().rev();
    let last = backwards.next();
    is_punct(last, '#') || is_punct(last, '!') && is_punct(backwards.next(), '#')
}

fn is_punct(token: Option<&TokenTree>, wanted: char) -> bool {
    matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(place: &str, text: &str) -> Vec<String> {
        check(place, text).unwrap().into_iter().map(|finding| finding.problem).collect()
    }

    #[test]
    fn a_tidy_file_is_clean() {
        let text = "//! Doc.\n// todo!() and #[ignore] in a comment\n\
                    #[expect(dead_code, reason = \"todo!\")]\nfn f() { let todo = [1]; }";
        assert_eq!(problems("a/b.rs", text), [""; 0]);
    }

    #[test]
    fn layout_rules_are_checked() {
        assert_eq!(problems("a/mod.rs", "fn f() {}"), ["has no module doc", "is a `mod.rs`"]);
    }

    #[test]
    fn code_lines_leave_out_docs_blanks_and_the_test_module() {
        let padding = "/// doc\n\n// why\n".repeat(300);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{}}}\n", "fn t() {}\n".repeat(600));
        let file =
            |lines: usize| format!("//! Doc.\n{padding}{}{tests}", "const _: () = ();\n".repeat(lines));
        assert_eq!(problems("a.rs", &file(MAX_CODE_LINES - 1)), [""; 0]);
        assert_eq!(problems("a.rs", &file(MAX_CODE_LINES)), ["has 501 code lines, more than 500"]);
    }

    #[test]
    fn unfinished_code_is_found_at_its_line() {
        let findings =
            check("a.rs", "//! Doc.\nfn f() {\n    if x { todo!() }\n    unimplemented!()\n}").unwrap();
        let found: Vec<_> = findings.iter().map(|f| (f.line.unwrap(), f.problem.as_str())).collect();
        assert_eq!(found, [(3, "uses `todo!`"), (4, "uses `unimplemented!`")]);
    }

    #[test]
    fn forbidden_attributes_are_found() {
        let ignored = "//! Doc.\n#[test]\n#[ignore = \"slow\"]\nfn f() {}";
        assert_eq!(problems("a.rs", ignored), ["ignores a test"]);
        let sometimes = "//! Doc.\n#[cfg_attr(windows, ignore)]\nfn f() {}";
        assert_eq!(problems("a.rs", sometimes), ["ignores a test on some platforms"]);
        let allowed = "//! Doc.\n#![allow(dead_code)]\nfn f() { #[allow(unused)] let x = 1; }";
        assert_eq!(problems("a.rs", allowed), ["allows a lint without a reason"; 2]);
        let reasoned = "//! Doc.\n#[allow(dead_code, reason = \"windows only\")]\nfn f() {}";
        assert_eq!(problems("a.rs", reasoned), [""; 0]);
    }
}
