//! What the core's own code mentions.

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{ExprMethodCall, Macro, Path};

use crate::finding::Finding;
use crate::imports::Imports;
use crate::source::Source;

/// Modules of `std` that do I/O or start threads.
const IMPURE_MODULES: &[&str] = &["env", "fs", "net", "process", "thread"];

/// What `std::net` holds besides sockets: plain data.
const ADDRESSES: &[&str] =
    &["AddrParseError", "IpAddr", "Ipv4Addr", "Ipv6Addr", "SocketAddr", "SocketAddrV4", "SocketAddrV6"];

const ENV_FILE: &str = "/retry/env.rs";
const JITTER_FILE: &str = "/retry/jitter.rs";
const HINT: &str = "/retry/hint";

/// A finding per mention of a clock, I/O, a thread or randomness in `source`, the excused ones apart.
pub(super) fn impure(source: &Source) -> Vec<Finding> {
    let imports = Imports::of(&source.tree);
    let mut mentions = Mentions { imports: &imports, found: imports.all.clone(), elapsed: Vec::new() };
    mentions.visit_file(&source.tree);
    mentions.found.sort();
    mentions.found.dedup();
    let elapsed = mentions.elapsed.iter().filter(|_| source.path.contains(HINT)).map(|line| {
        let remedy = "take the time now as an argument (Unix seconds)";
        Finding::in_file(&source.path, "`.elapsed()` reads the clock", remedy).at(*line)
    });
    let paths = mentions.found.iter().filter_map(|(line, path)| {
        let remedy = remedy(path, &source.path)?;
        Some(
            Finding::in_file(&source.path, format!("the core mentions `{}`", path.join("::")), remedy)
                .at(*line),
        )
    });
    paths.chain(elapsed).collect()
}

/// What to do about a mention of `path` in the file at `place`; `None` when it is fine.
fn remedy(path: &[String], place: &str) -> Option<&'static str> {
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    match path.as_slice() {
        ["std", "env", ..] if place.ends_with(ENV_FILE) => None,
        ["std", "net", address, ..] if ADDRESSES.contains(address) => None,
        ["std", module, ..] if IMPURE_MODULES.contains(module) => {
            Some("return a command that a driver in gglib-runtime or gglib-proxy carries out")
        }
        ["std", "time", "Instant", ..] => Some("take a Moment as an argument"),
        ["std", "time", "SystemTime", "now" | "elapsed"] => {
            Some("take the time now as an argument (Unix seconds)")
        }
        ["std", "time", "SystemTime" | "UNIX_EPOCH", ..] if place.contains(HINT) => None,
        ["std", "time", "SystemTime" | "UNIX_EPOCH", ..] => {
            Some("wall-clock time is read in retry::hint alone; take a Moment as an argument")
        }
        ["std" | "core", "time", "*"] | ["std", "*"] => {
            Some("import the names that are used, so that this audit sees them")
        }
        ["rand", ..] if !place.ends_with(JITTER_FILE) => {
            Some("take a unit draw in [0, 1) as an argument; retry::jitter_unit makes one")
        }
        _ => None,
    }
}

struct Mentions<'a> {
    imports: &'a Imports,
    found: Vec<(usize, Vec<String>)>,
    elapsed: Vec<usize>,
}

impl Visit<'_> for Mentions<'_> {
    fn visit_path(&mut self, path: &Path) {
        if let Some(first) = path.segments.first() {
            self.found.push((first.ident.span().start().line, self.imports.resolve(path)));
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        if call.method == "elapsed" {
            self.elapsed.push(call.method.span().start().line);
        }
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, mac: &Macro) {
        self.visit_tokens(mac.tokens.clone());
        visit::visit_macro(self, mac);
    }
}

impl Mentions<'_> {
    /// Collects `a::b::c` sequences: what stands in a macro's call is not parsed.
    fn visit_tokens(&mut self, tokens: TokenStream) {
        let mut path = Vec::new();
        let mut line = 0;
        let mut after_colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(ident) => {
                    if after_colons != 2 {
                        self.end_path(line, &mut path);
                        line = ident.span().start().line;
                    }
                    path.push(ident.to_string());
                    after_colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => after_colons += 1,
                other => {
                    self.end_path(line, &mut path);
                    after_colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.visit_tokens(group.stream());
                    }
                }
            }
        }
        self.end_path(line, &mut path);
    }

    fn end_path(&mut self, line: usize, path: &mut Vec<String>) {
        if !path.is_empty() {
            self.found.push((line, self.imports.resolve_names(std::mem::take(path))));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, code: &str) -> Vec<String> {
        let tree = syn::parse_file(code).unwrap();
        let source = Source { path: format!("gglib-core/src/{path}"), tree };
        impure(&source).into_iter().map(|f| format!("{}: {}", f.line.unwrap(), f.problem)).collect()
    }

    #[test]
    fn pure_code_is_clean() {
        let code = "use std::time::Duration; mod env; fn f() -> usize { env::read(); size_of::<Duration>() }";
        assert_eq!(problems("a.rs", code), [""; 0]);
    }

    #[test]
    fn clocks_are_found_by_any_name() {
        assert_eq!(problems("a.rs", "fn f() { std::time::Instant::now(); }").len(), 1);
        assert_eq!(
            problems("a.rs", "use std::time as t;\nfn f() { t::SystemTime::now(); }"),
            ["2: the core mentions `std::time::SystemTime::now`"]
        );
        assert_eq!(problems("a.rs", "use std::time::*;"), ["1: the core mentions `std::time::*`"]);
    }

    #[test]
    fn io_is_found_in_imports_types_and_macros() {
        assert_eq!(problems("a.rs", "use std::{fmt, fs::File};"), ["1: the core mentions `std::fs::File`"]);
        assert_eq!(problems("a.rs", "fn f(s: std::net::TcpStream) {}").len(), 1);
        assert_eq!(problems("a.rs", "use std::net::SocketAddr; fn f(s: SocketAddr) {}"), [""; 0]);
        assert_eq!(
            problems("a.rs", "fn f() { format!(\"{}\", std::env::var(\"A\").is_ok()); }"),
            ["1: the core mentions `std::env::var`"]
        );
        assert_eq!(problems("a.rs", "fn f() { std::thread::spawn(|| std::process::exit(1)); }").len(), 2);
    }

    #[test]
    fn the_named_exceptions_hold_in_their_files_only() {
        let environment = "fn f() { std::env::var(\"A\"); }";
        assert_eq!(problems("retry/env.rs", environment), [""; 0]);
        assert_eq!(problems("retry/policy.rs", environment).len(), 1);
        let random = "fn f() -> f64 { rand::random() }";
        assert_eq!(problems("retry/jitter.rs", random), [""; 0]);
        assert_eq!(problems("retry/backoff.rs", random).len(), 1);
        assert_eq!(problems("retry/env.rs", "fn f() { std::fs::read(\"a\"); }").len(), 1);
    }

    #[test]
    fn wall_clock_types_are_for_hints_and_their_clock_for_nobody() {
        let typed =
            "use std::time::{SystemTime, UNIX_EPOCH}; fn f(t: SystemTime) { t.duration_since(UNIX_EPOCH); }";
        assert_eq!(problems("retry/hint/date.rs", typed), [""; 0]);
        assert!(!problems("retry/budget.rs", typed).is_empty());
        let reading = "use std::time::SystemTime; fn f() { SystemTime::now(); }";
        assert_eq!(problems("retry/hint.rs", reading), ["1: the core mentions `std::time::SystemTime::now`"]);
        assert_eq!(
            problems("retry/hint.rs", "fn f(t: T) { t.elapsed(); }"),
            ["1: `.elapsed()` reads the clock"]
        );
    }
}
