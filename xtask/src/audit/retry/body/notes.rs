//! What a walk through a body takes note of, and what it has to remember for it.

use std::collections::HashSet;

use proc_macro2::Span;
use syn::{Expr, ExprField, Member};

use super::super::graph::{Call, Callee};
use super::super::visit::Function;
use super::super::{names, waits};
use crate::imports::Imports;

/// The walk through one body.
pub(in crate::audit::retry) struct Body<'a> {
    pub(super) imports: &'a Imports,
    pub(super) facts: Function,
    /// The loops around the current expression, outermost first.
    loops: Vec<Loop>,
    /// Variables that hold a timer which nobody has awaited yet.
    pub(super) timers: HashSet<String>,
    pub(super) enclosing_awaits: usize,
    /// How many spawning calls are around the current expression.
    pub(super) spawns: usize,
    /// The requests sent so far in each block or arm around the current expression.
    pub(super) sent: Vec<Vec<Expr>>,
}

struct Loop {
    line: usize,
    waits: bool,
    awaits: bool,
}

impl<'a> Body<'a> {
    pub(super) fn new(imports: &'a Imports) -> Self {
        Self {
            imports,
            facts: Function::default(),
            loops: Vec::new(),
            timers: HashSet::new(),
            enclosing_awaits: 0,
            spawns: 0,
            sent: Vec::new(),
        }
    }

    pub(super) fn finish(self) -> Function {
        let mut facts = self.facts;
        for lines in [
            &mut facts.waits,
            &mut facts.waiting_loops,
            &mut facts.awaiting_loops,
            &mut facts.decides,
            &mut facts.resends,
            &mut facts.counters,
        ] {
            lines.sort_unstable();
            lines.dedup();
        }
        facts
    }

    pub(in crate::audit::retry) fn enter_loop(&mut self, at: Span) {
        self.facts.acts = true;
        self.loops.push(Loop { line: line(at), waits: false, awaits: false });
    }

    pub(in crate::audit::retry) fn leave_loop(&mut self) {
        if let Some(left) = self.loops.pop() {
            if left.waits {
                self.facts.waiting_loops.push(left.line);
            }
            if left.awaits {
                self.facts.awaiting_loops.push(left.line);
            }
        }
    }

    pub(in crate::audit::retry) fn note_await(&mut self) {
        self.facts.acts = true;
        self.loops.iter_mut().for_each(|around| around.awaits = true);
    }

    /// Takes note of a call of `name`; `arguments` counts the receiver.
    pub(in crate::audit::retry) fn note_call(
        &mut self,
        name: &str,
        at: Span,
        arguments: usize,
        awaited: bool,
    ) {
        if waits::is_wait(name, arguments, awaited) {
            self.facts.sleeps |= self.spawns == 0 && !waits::bounds(name);
            self.note_wait(at);
        }
        if waits::drives_sequence(name, arguments) {
            self.facts.decides.push(line(at));
        }
    }

    /// Takes note of whom a call calls, unless it is spawned and so nobody waits for it.
    pub(in crate::audit::retry) fn note_callee(&mut self, callee: Callee, at: Span) {
        if self.spawns == 0 {
            let in_loop = self.loops.last().map(|around| around.line);
            self.facts.calls.push(Call { line: line(at), in_loop, callee });
        }
    }

    /// Takes note of a variable that a loop binds or changes.
    pub(in crate::audit::retry) fn note_changed(&mut self, variable: &str, at: Span) {
        if !self.loops.is_empty() && names::counts(variable) {
            self.facts.counters.push(line(at));
        }
    }

    /// Takes note of a name in an awaited expression that is not a call.
    pub(in crate::audit::retry) fn note_awaited_name(&mut self, name: &str, at: Span) {
        if waits::names_timer(name) || self.timers.contains(name) {
            self.facts.sleeps |= self.spawns == 0;
            self.note_wait(at);
        }
    }

    pub(in crate::audit::retry) fn note_decide(&mut self, name: &str, at: Span) {
        if waits::is_decide(name) {
            self.facts.decides.push(line(at));
        }
    }

    /// The last segment of what `name` was imported as.
    pub(in crate::audit::retry) fn real_name(&self, name: &str) -> String {
        self.imports.resolve_names(vec![name.to_owned()]).pop().unwrap_or_default()
    }

    /// Takes note of a request, which is sent again when the same one was sent before it, or when a loop sends
    /// copies of it.
    pub(super) fn note_send(&mut self, request: Expr, copies: bool, at: Span) {
        let again = self.sent.iter().flatten().any(|sent| *sent == request);
        if again || copies && !self.loops.is_empty() {
            self.facts.resends.push(line(at));
        }
        if let Some(scope) = self.sent.last_mut() {
            scope.push(request);
        }
    }

    pub(super) fn note_assigned(&mut self, target: &Expr) {
        match target {
            Expr::Path(path) => {
                if let Some(variable) = path.path.get_ident() {
                    self.note_changed(&variable.to_string(), variable.span());
                }
            }
            Expr::Field(ExprField { member: Member::Named(name), .. }) => {
                self.note_changed(&name.to_string(), name.span());
            }
            Expr::Unary(inner) => self.note_assigned(&inner.expr),
            _ => {}
        }
    }

    /// Walks what stands in a call of `name`.
    pub(super) fn within_call(&mut self, name: Option<&str>, walk: impl FnOnce(&mut Self)) {
        let spawns = usize::from(name.is_some_and(|name| name.starts_with("spawn")));
        self.spawns += spawns;
        walk(self);
        self.spawns -= spawns;
    }

    pub(super) fn note_wait(&mut self, at: Span) {
        self.facts.waits.push(line(at));
        self.loops.iter_mut().for_each(|around| around.waits = true);
    }

    pub(super) fn is_awaited(&self) -> bool {
        self.enclosing_awaits > 0
    }
}

pub(super) fn line(at: Span) -> usize {
    at.start().line
}
