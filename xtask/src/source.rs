//! The Rust files of a crate as syntax trees, without what only tests see.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use syn::{Attribute, File, ImplItem, Item, Meta, Token, punctuated::Punctuated};

use crate::workspace::relative;

/// One file of shipped code.
pub(crate) struct Source {
    /// Relative to the workspace's root, with `/`.
    pub(crate) path: String,
    /// Without `#[cfg(test)]` items.
    pub(crate) tree: File,
}

/// Everything under `src/` of the crate in `package`, in order of path.
///
/// Left out are items under `#[cfg(test)]` and the files of modules declared under it.
pub(crate) fn shipped(root: &Path, package: &Path) -> Result<Vec<Source>> {
    let mut parsed = Vec::new();
    for path in rust_files(&package.join("src"))? {
        let tree = parse(&path)?;
        parsed.push((path, tree));
    }
    Ok(without_tests(root, parsed))
}

/// The code under `root`, whoever wrote it, and the files that are no Rust to `syn`, both in order of path.
///
/// Left out are, besides what [`shipped`] leaves out, build output, hidden directories, and the directories in
/// which cargo looks for tests, benches and examples, and files named `tests.rs`, however they are declared.
pub(crate) fn foreign(root: &Path) -> Result<(Vec<Source>, Vec<String>)> {
    let (mut parsed, mut unreadable) = (Vec::new(), Vec::new());
    for path in rust_files(root)? {
        let place = relative(root, &path);
        let mut directories = place.split('/').rev().skip(1);
        let skipped = |name: &str| {
            name.starts_with('.') || matches!(name, "target" | "tests" | "test" | "benches" | "examples")
        };
        if directories.any(skipped) || place.ends_with("/tests.rs") {
            continue;
        }
        match parse(&path) {
            Ok(tree) => parsed.push((path, tree)),
            Err(_) => unreadable.push(place),
        }
    }
    Ok((without_tests(root, parsed), unreadable))
}

fn without_tests(root: &Path, parsed: Vec<(PathBuf, File)>) -> Vec<Source> {
    let mut tests = Vec::new();
    for (path, tree) in &parsed {
        if test_only(&tree.attrs) {
            tests.push(path.with_extension(""));
        }
        collect_test_modules(&children_of(path), &tree.items, &mut tests);
    }
    let kept = parsed.into_iter().filter(|(path, _)| {
        let module = path.with_extension("");
        !tests.iter().any(|test| module.starts_with(test))
    });
    kept.map(|(path, mut tree)| {
        strip_tests(&mut tree.items);
        Source { path: relative(root, &path), tree }
    })
    .collect()
}

fn parse(path: &Path) -> Result<File> {
    let text = fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    syn::parse_file(&text).with_context(|| format!("cannot parse {}", path.display()))
}

/// The `*.rs` files under `directory`, sorted; none when it does not exist.
fn rust_files(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        if !directory.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            if path.is_dir() {
                pending.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The directory in which the modules declared by the file at `path` live.
fn children_of(path: &Path) -> PathBuf {
    let root_file = path.file_stem().is_some_and(|stem| stem == "lib" || stem == "main");
    if root_file { path.parent().unwrap_or(path).to_owned() } else { path.with_extension("") }
}

fn collect_test_modules(directory: &Path, items: &[Item], found: &mut Vec<PathBuf>) {
    for item in items {
        let Item::Mod(module) = item else { continue };
        let place = directory.join(module.ident.to_string());
        match &module.content {
            None if test_only(&module.attrs) => found.push(place),
            None => {}
            Some((_, items)) => collect_test_modules(&place, items, found),
        }
    }
}

fn strip_tests(items: &mut Vec<Item>) {
    items.retain(|item| !test_only(attributes(item)));
    for item in items {
        match item {
            Item::Mod(module) => {
                if let Some((_, items)) = &mut module.content {
                    strip_tests(items);
                }
            }
            Item::Impl(block) => {
                block.items.retain(|item| !matches!(item, ImplItem::Fn(f) if test_only(&f.attrs)));
            }
            _ => {}
        }
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn test_only(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().segments.last().is_some_and(|last| last.ident == "test")
            || attribute.path().is_ident("cfg")
                && attribute.parse_args().is_ok_and(|condition| requires_test(&condition))
    })
}

/// Whether a `cfg` condition can hold only in a test build.
fn requires_test(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => path.is_ident("test"),
        Meta::List(list) if list.path.is_ident("all") => list
            .parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated)
            .is_ok_and(|parts| parts.iter().any(requires_test)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(files: &[(&str, &str)]) -> Vec<String> {
        let scratch = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = scratch.path().join("src").join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let sources = shipped(scratch.path(), scratch.path()).unwrap();
        sources
            .into_iter()
            .map(|source| format!("{}: {} items", source.path, source.tree.items.len()))
            .collect()
    }

    #[test]
    fn test_modules_and_their_files_are_left_out() {
        let files = [
            ("lib.rs", "mod a; #[cfg(test)] mod helpers; #[cfg(any(test, unix))] mod b;"),
            ("a.rs", "fn f() {} #[cfg(test)] mod tests;"),
            ("a/tests.rs", "fn t() {}"),
            ("a/tests/deep.rs", "fn t() {}"),
            ("b.rs", "#[cfg(all(test, unix))] fn t() {} #[cfg(not(test))] fn f() {} #[test] fn u() {}"),
            ("helpers.rs", "fn t() {}"),
            ("helpers_of_users.rs", "fn f() {}"),
            ("whole.rs", "#![cfg(test)] fn t() {}"),
        ];
        assert_eq!(
            kept(&files),
            [
                "src/a.rs: 1 items",
                "src/b.rs: 1 items",
                "src/helpers_of_users.rs: 1 items",
                "src/lib.rs: 2 items"
            ]
        );
    }

    #[test]
    fn a_foreign_tree_is_read_without_tests_build_output_and_what_is_no_rust() {
        let scratch = tempfile::tempdir().unwrap();
        let files = ["a/src/lib.rs", "b.rs", "a/tests/t.rs", "target/x.rs", ".git/y.rs", "a/benches/z.rs"];
        for (path, text) in files.map(|path| (path, "fn f() {}")).into_iter().chain([("bad.rs", "fn {")]) {
            let path = scratch.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let (sources, unreadable) = foreign(scratch.path()).unwrap();
        let paths: Vec<_> = sources.into_iter().map(|source| source.path).collect();
        assert_eq!((paths, unreadable), (vec!["a/src/lib.rs".into(), "b.rs".into()], vec!["bad.rs".into()]));
    }

    #[test]
    fn test_functions_of_an_impl_are_left_out() {
        let mut tree: File = syn::parse_quote!(impl A { #[cfg(test)] fn t() {} fn f() {} });
        strip_tests(&mut tree.items);
        let Item::Impl(block) = &tree.items[0] else { panic!("an impl") };
        assert_eq!(block.items.len(), 1);
    }
}
