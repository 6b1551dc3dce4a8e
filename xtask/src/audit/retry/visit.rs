//! Finds, function by function, where code waits, loops, asks the retry policy and does things again.
//!
//! **A wait** is a call whose last path segment or method is `sleep`, `sleep_until`, `recv_timeout`,
//! `wait_timeout`, `wait_timeout_while`, `park_timeout` or `poll_tick`; a call of `tick`, `pause`, `timeout`
//! or `timeout_at` under an `.await`; or an `.await` on a variable that holds an unawaited one of these, an
//! `interval`, or is named `sleep`. Names are seen through `use … as …`. A `timeout` without arguments is a
//! getter, no wait.
//!
//! **A loop waits** when a wait stands in its body, or in the condition of a `while`; nested blocks, closures
//! and async blocks count, nested functions do not. All of it belongs to the function that encloses it.
//!
//! **Macros** are opaque to `syn`, so their tokens are scanned: the same names in call position count as
//! awaited, the keywords `loop`, `while` and `for` open a loop up to the end of the next braces, and in a macro
//! whose name contains `select` or `join` everything is awaited, timer variables included. What a `macro_rules!`
//! definition holds is scanned in the same way and belongs to the item `name!`.
//!
//! **Doing things again** shows in a request that was sent before or whose copies a loop sends (`execute`, `fetch`,
//! `request`, `send_request`, a builder's `send`), in a function that is named for it (`retry`, `reconnect`,
//! `resend`, …) and awaits, loops or waits, and in a loop that binds or changes a counter named for tries
//! (`attempt`, `retries`, `backoff`, …).

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use syn::visit::{self, Visit};
use syn::{
    Block, File, ImplItemFn, ItemFn, ItemImpl, ItemMacro, ItemMod, ItemTrait, Signature, TraitItemFn, Type,
};

use super::graph::Call;
use super::{body, names};
use crate::imports::Imports;

/// What one function does, by line (counted from 1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// Waits, in a loop or not.
    pub waits: Vec<usize>,
    /// Loops that wait.
    pub waiting_loops: Vec<usize>,
    /// Loops that await anything.
    pub awaiting_loops: Vec<usize>,
    /// Mentions of `decide` or `decide_with`, and calls that make or drive a `RetrySequence`.
    pub decides: Vec<usize>,
    /// Requests that are sent again.
    pub resends: Vec<usize>,
    /// Counters of tries that a loop binds or changes.
    pub counters: Vec<usize>,
    /// Its own line, when it is named for doing something again and does anything.
    pub named: Option<usize>,
    /// Whether it awaits or loops.
    pub acts: bool,
    /// Whether time passes in it that is not bounded work: what it spawns and its timeouts apart.
    pub sleeps: bool,
    /// Whether a wait is in a loop because the function calls itself, if only through others.
    pub recurs: bool,
    /// Loops that wait because a helper sleeps.
    pub helped_loops: Vec<usize>,
    /// What it calls.
    pub calls: Vec<Call>,
}

impl Function {
    /// Where and why the function has to be registered; `None` when it need not be.
    pub fn site(&self) -> Option<(usize, &'static str)> {
        let repeats = if self.recurs { "waits and calls itself" } else { "waits inside a loop" };
        let signs = [
            (self.waiting_loops.first(), repeats),
            (self.decides.first(), "asks the retry policy"),
            (self.resends.first(), "sends a request again"),
            (self.counters.first(), "counts tries in a loop"),
            (self.named.as_ref(), "is named for doing something again"),
        ];
        signs.into_iter().find_map(|(line, what)| Some((*line?, what)))
    }

    /// Adds what another function of the same name does, say for another platform.
    fn absorb(&mut self, other: Self) {
        self.waits.extend(other.waits);
        self.waiting_loops.extend(other.waiting_loops);
        self.awaiting_loops.extend(other.awaiting_loops);
        self.decides.extend(other.decides);
        self.resends.extend(other.resends);
        self.counters.extend(other.counters);
        self.calls.extend(other.calls);
        self.helped_loops.extend(other.helped_loops);
        self.named = self.named.or(other.named);
        self.acts |= other.acts;
        self.sleeps |= other.sleeps;
        self.recurs |= other.recurs;
    }
}

/// Every function of `file` by its item path: `function`, `Type::method`, `module::function`,
/// `outer::nested`, `macro!`.
pub fn functions(file: &File) -> BTreeMap<String, Function> {
    let imports = Imports::of(file);
    let mut finder = Finder { imports: &imports, scope: Vec::new(), found: BTreeMap::new() };
    finder.visit_file(file);
    finder.found
}

/// Walks items and keeps the path to where it is.
struct Finder<'a> {
    imports: &'a Imports,
    scope: Vec<String>,
    found: BTreeMap<String, Function>,
}

impl Finder<'_> {
    fn within(&mut self, name: String, walk: impl FnOnce(&mut Self)) {
        self.scope.push(name);
        walk(self);
        self.scope.pop();
    }

    fn function(&mut self, signature: &Signature, block: &Block) {
        let name = signature.ident.to_string();
        let mut facts = body::facts(block, self.imports);
        let acts = facts.acts || facts.sleeps || signature.asyncness.is_some();
        facts.named = (acts && names::repeats(&name)).then(|| signature.ident.span().start().line);
        self.within(name, |finder| {
            finder.add(facts);
            visit::visit_block(finder, block);
        });
    }

    fn add(&mut self, facts: Function) {
        match self.found.entry(self.scope.join("::")) {
            Entry::Occupied(mut known) => known.get_mut().absorb(facts),
            Entry::Vacant(new) => _ = new.insert(facts),
        }
    }
}

impl Visit<'_> for Finder<'_> {
    fn visit_item_mod(&mut self, module: &ItemMod) {
        self.within(module.ident.to_string(), |finder| visit::visit_item_mod(finder, module));
    }

    fn visit_item_impl(&mut self, block: &ItemImpl) {
        self.within(type_name(&block.self_ty), |finder| visit::visit_item_impl(finder, block));
    }

    fn visit_item_trait(&mut self, item: &ItemTrait) {
        self.within(item.ident.to_string(), |finder| visit::visit_item_trait(finder, item));
    }

    fn visit_item_macro(&mut self, item: &ItemMacro) {
        if let Some(name) = &item.ident {
            let facts = body::macro_facts(&item.mac.tokens, self.imports);
            self.within(format!("{name}!"), |finder| finder.add(facts));
        }
    }

    fn visit_item_fn(&mut self, item: &ItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &ImplItemFn) {
        self.function(&item.sig, &item.block);
    }

    fn visit_trait_item_fn(&mut self, item: &TraitItemFn) {
        if let Some(block) = &item.default {
            self.function(&item.sig, block);
        }
    }
}

fn type_name(ty: &Type) -> String {
    match ty {
        Type::Path(path) => {
            path.path.segments.last().map_or_else(|| "_".to_owned(), |last| last.ident.to_string())
        }
        Type::Reference(reference) => type_name(&reference.elem),
        _ => "_".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(code: &str) -> BTreeMap<String, Function> {
        functions(&syn::parse_file(code).unwrap())
    }

    /// The items that wait inside a loop.
    fn waiting(code: &str) -> Vec<String> {
        let found = found(code).into_iter();
        found.filter(|(_, function)| !function.waiting_loops.is_empty()).map(|(item, _)| item).collect()
    }

    #[test]
    fn items_are_named_by_their_enclosing_function() {
        let code = "
            fn free() { loop { sleep(d); } }
            mod inner { fn deep() { loop { sleep(d); } } }
            impl Plain { fn method() { loop { sleep(d); } } }
            impl<T> Future for &mut wide::Generic<T> { fn poll() { loop { sleep(d); } } }
            trait Waiter { fn given() { loop { sleep(d); } } fn required(); }
            fn outer() { fn nested() { loop { sleep(d); } } }
        ";
        let expected =
            ["Generic::poll", "Plain::method", "Waiter::given", "free", "inner::deep", "outer::nested"];
        assert_eq!(waiting(code), expected);
        assert!(found(code).contains_key("outer"), "functions without a site are listed too");
    }

    #[test]
    fn closures_and_async_blocks_belong_to_the_enclosing_function() {
        let code = "
            fn spawns() { spawn(async move { loop { sleep(d).await; } }); }
            fn returns() -> impl Fn() { move || loop { thread::sleep(d); } }
        ";
        assert_eq!(waiting(code), ["returns", "spawns"]);
    }

    #[test]
    fn a_nested_function_in_a_loop_is_not_the_outer_ones_wait() {
        assert_eq!(waiting("fn outer() { loop { fn inner() { sleep(d); } } }"), [""; 0]);
    }

    #[test]
    fn functions_of_one_name_are_taken_together() {
        let code = "#[cfg(unix)] fn f() { loop { sleep(d); } }\n#[cfg(windows)] fn f() { decide(); }";
        let both = &found(code)["f"];
        assert_eq!((both.waiting_loops.as_slice(), both.decides.as_slice()), (&[1][..], &[2][..]));
    }
    #[test]
    fn a_macro_definition_is_an_item() {
        let code = "macro_rules! again { ($e:expr, $d:expr) => { loop { $e; std::thread::sleep($d); } } }";
        assert_eq!(waiting(code), ["again!"]);
        let inside = "fn f() { macro_rules! nap { () => { while x { sleep(d).await } } } nap!(); }";
        assert_eq!(waiting(inside), ["f::nap!"]);
    }

    #[test]
    fn a_name_counts_when_the_function_acts() {
        let named = |code| found(code)["retry"].named;
        assert_eq!(named("\nasync fn retry() {}"), Some(2));
        assert_eq!(named("fn retry() { for x in xs {} }"), Some(1));
        assert_eq!(named("fn retry() { thread::sleep(d) }"), Some(1));
        assert_eq!(named("fn retry() -> Policy { Policy::new() }"), None);
    }
}
