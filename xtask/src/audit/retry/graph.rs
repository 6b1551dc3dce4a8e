//! Follows calls through one crate: a helper that sleeps makes its caller's loop wait, and recursion is a loop.
//!
//! Followed are calls whose target is plain in the text: `self.method()`, `Type::method()`, a function by its
//! name or path, a macro of the crate, and a method of something else whose name only functions have that sleep
//! themselves. What a helper spawns is nobody's wait, and a helper that only bounds its work by a timeout does not
//! sleep.

use std::collections::{BTreeMap, BTreeSet};

use super::visit::Function;

/// The functions of one file by item path; files by path.
pub(super) type Files = BTreeMap<String, BTreeMap<String, Function>>;

/// What a call names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Callee {
    /// The segments of a path, imports resolved.
    Path(Vec<String>),
    /// A method of `self`.
    Own(String),
    /// A method of something else.
    Method(String),
    /// A macro.
    Macro(String),
}

/// A call that its function waits for: what it spawns is left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The line, counted from 1.
    pub line: usize,
    /// The line of the innermost loop around it.
    pub in_loop: Option<usize>,
    /// What is called.
    pub callee: Callee,
}

/// Adds to the functions of one crate the waits that calls bring.
pub(super) fn follow(files: &mut Files) {
    let crate_functions = Crate::of(files);
    let sleeping = crate_functions.sleeping();
    let mut found = Vec::new();
    for (caller, function) in crate_functions.functions.iter().enumerate() {
        for call in &function.facts.calls {
            let targets = crate_functions.targets(caller, &call.callee);
            let is_method = matches!(call.callee, Callee::Method(_));
            let sleeps = if is_method {
                !targets.is_empty()
                    && targets.iter().all(|target| crate_functions.functions[*target].facts.sleeps)
            } else {
                targets.iter().any(|target| sleeping.contains(target))
            };
            let recurs = sleeping.contains(&caller)
                && !is_method
                && targets.iter().any(|target| crate_functions.reaches(*target, caller));
            let line = call.in_loop.filter(|_| sleeps).or(recurs.then_some(call.line));
            found.extend(line.map(|line| (function.file.clone(), function.item.clone(), line, recurs)));
        }
    }
    for (file, item, line, recurs) in found {
        if let Some(function) = files.get_mut(&file).and_then(|functions| functions.get_mut(&item)) {
            function.waiting_loops.push(line);
            function.waiting_loops.sort_unstable();
            function.waiting_loops.dedup();
            function.waits.push(line);
            function.recurs |= recurs;
            if !recurs {
                function.helped_loops.push(line);
            }
        }
    }
}

struct Known {
    file: String,
    item: String,
    facts: Function,
}

impl Known {
    fn name(&self) -> &str {
        self.item.rsplit("::").next().unwrap_or_default()
    }

    /// What the function stands in: a type, a module or a function; empty at the top of a file.
    fn parent(&self) -> &str {
        self.item.rsplit("::").nth(1).unwrap_or_default()
    }

    fn is_free(&self) -> bool {
        !is_type(self.parent())
    }

    fn is_in_module(&self, module: &str) -> bool {
        let stem = self.file.rsplit('/').next().unwrap_or_default().trim_end_matches(".rs");
        self.parent() == module || stem == module || self.file.ends_with(&format!("/{module}/mod.rs"))
    }
}

struct Crate {
    functions: Vec<Known>,
    by_name: BTreeMap<String, Vec<usize>>,
}

impl Crate {
    fn of(files: &Files) -> Self {
        let mut functions = Vec::new();
        for (file, items) in files {
            for (item, facts) in items {
                functions.push(Known { file: file.clone(), item: item.clone(), facts: facts.clone() });
            }
        }
        let mut by_name: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, function) in functions.iter().enumerate() {
            by_name.entry(function.name().to_owned()).or_default().push(index);
        }
        Self { functions, by_name }
    }

    /// The functions of the crate that a call in `caller` may mean.
    fn targets(&self, from: usize, callee: &Callee) -> Vec<usize> {
        let asking = &self.functions[from];
        let named = |name: &str, fits: &dyn Fn(&Known) -> bool| {
            let known = self.by_name.get(name).map_or(&[][..], Vec::as_slice);
            known.iter().copied().filter(|index| fits(&self.functions[*index])).collect()
        };
        match callee {
            Callee::Own(name) => named(name, &|known| known.parent() == asking.parent()),
            Callee::Method(name) => named(name, &|known| !known.is_free()),
            Callee::Macro(name) => named(&format!("{name}!"), &|_| true),
            Callee::Path(path) => {
                let [.., name] = path.as_slice() else { return Vec::new() };
                match path.len().checked_sub(2).map(|index| path[index].as_str()) {
                    Some("Self") => named(name, &|known| known.parent() == asking.parent()),
                    Some(ty) if is_type(ty) => named(name, &|known| known.parent() == ty),
                    Some("crate" | "super" | "self") => named(name, &Known::is_free),
                    Some(module) => named(name, &|known| known.is_free() && known.is_in_module(module)),
                    None => named(name, &|known| known.is_free() && known.file == asking.file),
                }
            }
        }
    }

    /// The functions that sleep, themselves or through others.
    fn sleeping(&self) -> BTreeSet<usize> {
        let asleep = |(index, known): (usize, &Known)| known.facts.sleeps.then_some(index);
        let mut sleeping: BTreeSet<usize> = self.functions.iter().enumerate().filter_map(asleep).collect();
        loop {
            let calls_one = |(index, known): (usize, &Known)| {
                let mut precise =
                    known.facts.calls.iter().filter(|call| !matches!(call.callee, Callee::Method(_)));
                precise
                    .any(|call| self.targets(index, &call.callee).iter().any(|to| sleeping.contains(to)))
                    .then_some(index)
            };
            let more: BTreeSet<usize> = self.functions.iter().enumerate().filter_map(calls_one).collect();
            if more.is_subset(&sleeping) {
                return sleeping;
            }
            sleeping.extend(more);
        }
    }

    fn reaches(&self, from: usize, to: usize) -> bool {
        let (mut seen, mut pending) = (BTreeSet::new(), vec![from]);
        while let Some(current) = pending.pop() {
            if current == to {
                return true;
            }
            if seen.insert(current) {
                let calls = self.functions[current].facts.calls.iter();
                let precise = calls.filter(|call| !matches!(call.callee, Callee::Method(_)));
                pending.extend(precise.flat_map(|call| self.targets(current, &call.callee)));
            }
        }
        false
    }
}

fn is_type(name: &str) -> bool {
    name == "_" || name.starts_with(char::is_uppercase)
}

#[cfg(test)]
mod tests {
    use super::super::visit::functions;
    use super::*;

    /// The items that wait inside a loop, in a crate of these files.
    fn waiting(files: &[(&str, &str)]) -> Vec<String> {
        let parsed =
            files.iter().map(|(path, code)| (path.to_string(), functions(&syn::parse_file(code).unwrap())));
        let mut files: Files = parsed.collect();
        follow(&mut files);
        let items = files.into_values().flatten();
        items.filter(|(_, function)| !function.waiting_loops.is_empty()).map(|(item, _)| item).collect()
    }

    #[test]
    fn a_helper_that_sleeps_makes_the_loop_wait_through_any_number_of_calls() {
        let code = "async fn f() { loop { rest().await; } } async fn rest() { deeper().await }
            async fn deeper() { sleep(d).await }";
        assert_eq!(waiting(&[("a.rs", code)]), ["f"]);
        let other = "use crate::clock::rest as nap; fn g() { while busy() { nap(); } }";
        assert_eq!(waiting(&[("a.rs", other), ("clock.rs", "pub fn rest() { thread::sleep(d) }")]), ["g"]);
        let method = "impl A { async fn f(&self) { loop { self.rest().await } } async fn rest(&self) { sleep(d).await } }";
        assert_eq!(waiting(&[("a.rs", method)]), ["A::f"]);
        let foreign = "fn f(a: A) { loop { a.rest() } } impl A { fn rest(&self) { sleep(d) } }";
        assert_eq!(waiting(&[("a.rs", foreign)]), ["f"]);
    }

    #[test]
    fn a_macro_of_the_crate_is_a_helper_too() {
        let code =
            "macro_rules! nap { ($d:expr) => { std::thread::sleep($d) } } fn f() { loop { nap!(d); } }";
        assert_eq!(waiting(&[("a.rs", code)]), ["f"]);
    }

    #[test]
    fn names_of_other_types_and_modules_are_no_helpers() {
        let code = "fn f() { loop { a.rest(); other::rest(); B::rest() } }
            impl A { fn rest(&self) { sleep(d) } } impl B { fn rest(&self) {} } fn rest() { sleep(d) }";
        assert_eq!(waiting(&[("a.rs", code)]), [""; 0]);
    }

    #[test]
    fn what_is_spawned_or_only_bounded_is_no_wait_of_the_caller() {
        let spawns = "fn f() { loop { start() } } fn start() { spawn(async { sleep(d).await }); }";
        assert_eq!(waiting(&[("a.rs", spawns)]), [""; 0]);
        let spawned = "fn f() { loop { spawn(serve()); } } async fn serve() { sleep(d).await }";
        assert_eq!(waiting(&[("a.rs", spawned)]), [""; 0]);
        let bounded = "async fn f() { loop { ask().await } } async fn ask() { timeout(d, get()).await }";
        assert_eq!(waiting(&[("a.rs", bounded)]), [""; 0]);
    }

    #[test]
    fn recursion_that_sleeps_is_a_loop_that_waits() {
        assert_eq!(waiting(&[("a.rs", "async fn f() { sleep(d).await; Box::pin(f()).await }")]), ["f"]);
        let mutual = "fn f() { sleep(d); g() } fn g() { f() }";
        assert_eq!(waiting(&[("a.rs", mutual)]), ["f", "g"]);
        let delegates = "impl A { fn rest(&self) { sleep(d); self.inner.rest() } }";
        assert_eq!(waiting(&[("a.rs", delegates)]), [""; 0]);
        assert_eq!(waiting(&[("a.rs", "fn walk() { walk() }")]), [""; 0]);
    }
}
