//! Names brought in by `use`, so that an alias hides nothing.

use std::collections::HashMap;

use syn::visit::{self, Visit};
use syn::{File, ItemUse, Path, UseTree};

/// What the `use` items of one file bring in, whatever scope they stand in.
#[derive(Default)]
pub(crate) struct Imports {
    /// Line (from 1) and full path of each import; a glob ends in `*`.
    pub(crate) all: Vec<(usize, Vec<String>)>,
    by_name: HashMap<String, Vec<String>>,
}

impl Imports {
    pub(crate) fn of(file: &File) -> Self {
        let mut imports = Self::default();
        imports.visit_file(file);
        imports
    }

    /// The segments of `path`, with its first name replaced by what the file imported under it.
    pub(crate) fn resolve(&self, path: &Path) -> Vec<String> {
        self.resolve_names(path.segments.iter().map(|segment| segment.ident.to_string()).collect())
    }

    /// As [`resolve`](Self::resolve), for a path that is already split.
    pub(crate) fn resolve_names(&self, names: Vec<String>) -> Vec<String> {
        match names.first().and_then(|first| self.by_name.get(first)) {
            Some(full) => full.iter().chain(&names[1..]).cloned().collect(),
            None => names,
        }
    }

    fn add(&mut self, line: usize, mut prefix: Vec<String>, tree: &UseTree) {
        match tree {
            UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.add(line, prefix, &path.tree);
            }
            UseTree::Name(name) => {
                if name.ident != "self" {
                    prefix.push(name.ident.to_string());
                }
                let short = prefix.last().cloned().unwrap_or_default();
                self.insert(line, short, prefix);
            }
            UseTree::Rename(renamed) => {
                if renamed.ident != "self" {
                    prefix.push(renamed.ident.to_string());
                }
                self.insert(line, renamed.rename.to_string(), prefix);
            }
            UseTree::Glob(_) => {
                prefix.push("*".to_owned());
                self.all.push((line, prefix));
            }
            UseTree::Group(group) => {
                for tree in &group.items {
                    self.add(line, prefix.clone(), tree);
                }
            }
        }
    }

    fn insert(&mut self, line: usize, short: String, full: Vec<String>) {
        self.all.push((line, full.clone()));
        self.by_name.insert(short, full);
    }
}

impl Visit<'_> for Imports {
    fn visit_item_use(&mut self, item: &ItemUse) {
        self.add(item.use_token.span.start().line, Vec::new(), &item.tree);
        visit::visit_item_use(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_resolved_through_groups_aliases_and_self() {
        let imports = Imports::of(&syn::parse_quote! {
            use std::{env::{self, vars as all}, time as t};
            fn f() { use tokio::time::sleep as nap; }
        });
        let resolve = |path: &str| imports.resolve(&syn::parse_str(path).unwrap()).join("::");
        assert_eq!(resolve("env::var"), "std::env::var");
        assert_eq!(resolve("all"), "std::env::vars");
        assert_eq!(resolve("t::SystemTime::now"), "std::time::SystemTime::now");
        assert_eq!(resolve("nap"), "tokio::time::sleep");
        assert_eq!(resolve("crate::env::var"), "crate::env::var");
    }

    #[test]
    fn a_glob_is_listed() {
        let imports = Imports::of(&syn::parse_quote!(
            use std::time::*;
        ));
        assert_eq!(imports.all, [(1, vec!["std".to_owned(), "time".to_owned(), "*".to_owned()])]);
    }
}
