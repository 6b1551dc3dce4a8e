//! A linter for retries written by hand, in any Rust tree: which loops try again after a failure, and what is wrong
//! with the way they do it.
//!
//! **A retry** is a loop after some of whose failures (an `Err`, `is_err()`, the other side of an `Ok`) another turn
//! follows, and which success ends; or one that sleeps and names a status that asks for another try. Waiting for
//! a condition is none. What is said about each is in [`rules`]; a tree that does not parse in part is linted in
//! the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::{Result, ensure};
use syn::visit::{self, Visit};
use syn::{Block, ImplItemFn, ItemFn, ItemMacro, Signature, TraitItemFn};

use super::graph::{self, Callee, Files};
use super::visit::{Function, functions};
use crate::imports::Imports;
use crate::source::{self, Source};
use judge::Candidate;
use rules::{Level, Rule};

pub mod output;
pub mod rules;

mod flow;
mod judge;
mod outcome;
mod repetition;
mod syntax;

/// One smell in one place.
#[derive(Debug)]
pub struct Smell {
    /// The file, relative to the tree's root, with `/`.
    pub path: String,
    /// Counted from 1.
    pub line: usize,
    /// The function, or `name!` for a macro's definition.
    pub item: String,
    /// What is wrong.
    pub rule: &'static Rule,
}

/// What the linter saw.
#[derive(Debug)]
pub struct Lint {
    /// In order of path and line.
    pub smells: Vec<Smell>,
    /// The number of files that were read.
    pub files: usize,
    /// Files that are no Rust to the parser.
    pub unreadable: Vec<String>,
}

impl Lint {
    /// Whether nothing is worth changing; notes are not.
    pub fn is_clean(&self) -> bool {
        self.smells.iter().all(|smell| smell.rule.level == Level::Note)
    }
}

/// Lints every Rust file under `root`; tests, benches, examples and build output apart.
pub fn lint(root: &Path) -> Result<Lint> {
    ensure!(root.is_dir(), "{} is no directory", root.display());
    let (sources, unreadable) = source::foreign(root)?;
    ensure!(!sources.is_empty() || !unreadable.is_empty(), "no Rust files under {}", root.display());
    let mut files: Files =
        sources.iter().map(|source| (source.path.clone(), functions(&source.tree))).collect();
    graph::follow(&mut files);
    let bodies = bodies(&sources);
    let mut smells = Vec::new();
    for source in &sources {
        let imports = Imports::of(&source.tree);
        let mut linter = Linter {
            path: &source.path,
            imports: &imports,
            files: &files,
            bodies: &bodies,
            smells: Vec::new(),
        };
        linter.visit_file(&source.tree);
        smells.append(&mut linter.smells);
    }
    smells.sort_by(|a, b| (&a.path, a.line, a.rule.id).cmp(&(&b.path, b.line, b.rule.id)));
    smells.dedup_by(|a, b| a.path == b.path && a.line == b.line && a.rule.id == b.rule.id);
    Ok(Lint { smells, files: sources.len(), unreadable })
}

/// The words of each function of the tree, by its last name.
fn bodies(sources: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    struct Bodies(BTreeMap<String, BTreeSet<String>>);
    impl Bodies {
        fn add(&mut self, signature: &Signature, body: &Block) {
            self.0.entry(signature.ident.to_string()).or_default().extend(syntax::words_of_block(body));
        }
    }
    impl Visit<'_> for Bodies {
        fn visit_item_fn(&mut self, item: &ItemFn) {
            self.add(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }

        fn visit_impl_item_fn(&mut self, item: &ImplItemFn) {
            self.add(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }
    let mut bodies = Bodies(BTreeMap::new());
    for source in sources {
        bodies.visit_file(&source.tree);
    }
    bodies.0
}

struct Linter<'a> {
    path: &'a str,
    imports: &'a Imports,
    files: &'a Files,
    bodies: &'a BTreeMap<String, BTreeSet<String>>,
    smells: Vec<Smell>,
}

impl Linter<'_> {
    fn function(&mut self, signature: &Signature, body: &Block) {
        let name = signature.ident.to_string();
        let mut facts = Function::default();
        let known = self.files.get(self.path).into_iter().flatten();
        for (_, known) in known.filter(|(item, _)| item.rsplit("::").next() == Some(name.as_str())) {
            facts.helped_loops.extend(&known.helped_loops);
            facts.calls.extend(known.calls.iter().cloned());
            facts.sleeps |= known.sleeps;
            if known.recurs {
                facts.recurs = true;
                facts.waiting_loops.extend(&known.waiting_loops);
            }
        }
        let first = signature.ident.span().start().line;
        let last = body.brace_token.span.close().start().line;
        let inside = |line: &usize| (first..=last).contains(line);
        facts.waiting_loops.retain(inside);
        facts.recurs &= !facts.waiting_loops.is_empty();
        facts.calls.retain(|call| inside(&call.line));
        let mut helpers = BTreeSet::new();
        for call in &facts.calls {
            let (Callee::Own(callee) | Callee::Method(callee)) = &call.callee else {
                if let Callee::Path(path) = &call.callee
                    && let Some(words) = path.last().and_then(|name| self.bodies.get(name))
                    && path.last().is_some_and(|name| name != "new")
                {
                    helpers.extend(words.iter().cloned());
                }
                continue;
            };
            if mentions_delay(callee) {
                helpers.extend(self.bodies.get(callee).into_iter().flatten().cloned());
            }
        }
        let is_async = signature.asyncness.is_some();
        let candidate = Candidate {
            name: &name,
            body,
            is_async,
            imports: self.imports,
            facts: &facts,
            helpers: &helpers,
        };
        let found = judge::smells(&candidate);
        self.add(&name, found);
    }

    fn add(&mut self, item: &str, found: Vec<judge::Smell>) {
        self.smells.extend(found.into_iter().map(|(line, rule)| Smell {
            path: self.path.to_owned(),
            line,
            item: item.to_owned(),
            rule,
        }));
    }
}

/// A method that is asked for a delay by its name.
fn mentions_delay(method: &str) -> bool {
    ["delay", "backoff", "wait", "sleep", "jitter", "retry"].iter().any(|word| method.contains(word))
}

impl Visit<'_> for Linter<'_> {
    fn visit_item_fn(&mut self, item: &ItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &ImplItemFn) {
        self.function(&item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_macro(&mut self, item: &ItemMacro) {
        let Some(name) = &item.ident else { return };
        for repetition in repetition::of_macro(&item.mac.tokens, self.imports) {
            self.add(&format!("{name}!"), judge::smells_of_macro(&repetition));
        }
    }
}
