//! Scans the tokens of a macro call, which `syn` does not parse.

use proc_macro2::{Delimiter, Group, Ident, Spacing, TokenStream, TokenTree};

use super::body::Body;
use super::graph::Callee;
use super::waits;

/// Takes note of what stands in a macro's tokens; `awaited` says that the macro awaits what stands in it.
pub(super) fn scan(body: &mut Body<'_>, tokens: TokenStream, awaited: bool) {
    let mut open_loops = 0;
    let mut before = Before::default();
    let mut tokens = tokens.into_iter().peekable();
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Ident(ident) => {
                let arguments = match tokens.peek() {
                    Some(TokenTree::Group(group)) => call_arguments(group),
                    _ => None,
                };
                if ident == "loop" || ident == "while" || ident == "for" {
                    body.enter_loop(ident.span());
                    open_loops += 1;
                } else {
                    name(body, &ident, arguments, &before, awaited);
                    if before.name == "for" || tokens.peek().is_some_and(is_assigning) {
                        body.note_changed(&ident.to_string(), ident.span());
                    }
                }
                before = Before { name: ident.to_string(), ..Before::default() };
            }
            TokenTree::Punct(punct) => {
                before.dot = punct.as_char() == '.';
                before.bang = punct.as_char() == '!';
            }
            TokenTree::Group(group) => {
                let awaiting_macro = before.bang && waits::awaits(&before.name);
                if awaiting_macro {
                    body.note_await();
                }
                scan(body, group.stream(), awaited || awaiting_macro);
                if open_loops > 0 && group.delimiter() == Delimiter::Brace {
                    body.leave_loop();
                    open_loops -= 1;
                }
                before = Before::default();
            }
            TokenTree::Literal(_) => before = Before::default(),
        }
    }
    for _ in 0..open_loops {
        body.leave_loop();
    }
}

/// Name and number of arguments (the receiver counted) of what looks like a call in `tokens`.
pub(super) fn calls(tokens: &TokenStream) -> Vec<(String, usize)> {
    let tokens: Vec<TokenTree> = tokens.clone().into_iter().collect();
    let mut found = Vec::new();
    for (index, token) in tokens.iter().enumerate() {
        match (token, tokens.get(index + 1)) {
            (TokenTree::Ident(ident), Some(TokenTree::Group(group))) => {
                let receiver = index > 0 && is_dot(&tokens[index - 1]);
                found.extend(
                    call_arguments(group)
                        .map(|arguments| (ident.to_string(), arguments + usize::from(receiver))),
                );
            }
            (TokenTree::Group(group), _) => found.extend(calls(&group.stream())),
            _ => {}
        }
    }
    found
}

/// What stood before the current token.
#[derive(Default)]
struct Before {
    name: String,
    dot: bool,
    bang: bool,
}

fn name(body: &mut Body<'_>, ident: &Ident, arguments: Option<usize>, before: &Before, awaited: bool) {
    let name = ident.to_string();
    let real_name = if before.dot { name.clone() } else { body.real_name(&name) };
    match arguments {
        Some(arguments) => {
            body.note_call(&real_name, ident.span(), arguments + usize::from(before.dot), true);
            let callee =
                if before.dot { Callee::Method(name) } else { Callee::Path(vec![real_name.clone()]) };
            body.note_callee(callee, ident.span());
            body.note_decide(&real_name, ident.span());
        }
        None if before.dot && name == "await" => body.note_await(),
        None if awaited => body.note_awaited_name(&name, ident.span()),
        None => {}
    }
}

/// Whether the token begins an assigning operator such as `+=`.
fn is_assigning(token: &TokenTree) -> bool {
    let TokenTree::Punct(punct) = token else { return false };
    punct.spacing() == Spacing::Joint && matches!(punct.as_char(), '+' | '-' | '*')
}

fn is_dot(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == '.')
}

/// The number of arguments between parentheses; `None` for other groups.
fn call_arguments(group: &Group) -> Option<usize> {
    if group.delimiter() != Delimiter::Parenthesis {
        return None;
    }
    let mut arguments = 0;
    let mut in_argument = false;
    for token in group.stream() {
        if matches!(&token, TokenTree::Punct(punct) if punct.as_char() == ',') {
            in_argument = false;
        } else if !in_argument {
            in_argument = true;
            arguments += 1;
        }
    }
    Some(arguments)
}

#[cfg(test)]
mod tests {
    use super::super::visit::{Function, functions};

    fn body(code: &str) -> Function {
        let file = syn::parse_file(&format!("async fn f() {{\n{code}\n}}")).unwrap();
        functions(&file).remove("f").unwrap()
    }

    fn loops_that_wait(code: &str) -> usize {
        body(code).waiting_loops.len()
    }

    #[test]
    fn a_timer_in_a_select_counts() {
        assert_eq!(loops_that_wait("loop { tokio::select! { _ = sleep(d) => {} _ = rx.recv() => {} } }"), 1);
        assert_eq!(loops_that_wait("loop { select! { _ = every.tick() => {} } }"), 1);
        assert_eq!(loops_that_wait("loop { select! { x = timeout(d, rx.recv()) => {} } }"), 1);
        assert_eq!(loops_that_wait("loop { select! { x = rx.recv() => { sleep(d).await } } }"), 1);
        assert_eq!(loops_that_wait("loop { select! { x = rx.recv() => {} } }"), 0);
    }

    #[test]
    fn a_timer_variable_in_a_select_counts() {
        assert_eq!(loops_that_wait("let t = pin!(sleep(d)); loop { select! { _ = &mut t => {} } }"), 1);
        assert_eq!(loops_that_wait("loop { select! { _ = &mut self.sleep => {} } }"), 1);
        assert_eq!(loops_that_wait("let t = sleep(d); loop { trace!(?t); }"), 0);
    }

    #[test]
    fn a_loop_inside_of_a_macro_counts() {
        assert_eq!(body("select! {\n_ = async { loop {\nsleep(d).await } } => {} }").waiting_loops, [3]);
        assert_eq!(loops_that_wait("stream! { while again { sleep(d).await; } }"), 1);
        assert_eq!(loops_that_wait("stream! { for x in xs { yield x; } sleep(d).await; }"), 0);
    }

    #[test]
    fn a_select_awaits_in_its_loop_also_inside_of_another_macro() {
        assert_eq!(body("loop { select! { x = next() => {} } }").awaiting_loops, [2]);
        assert_eq!(body("stream! { loop { select! { x = next() => {} } } }").awaiting_loops, [2]);
        assert_eq!(body("stream! { loop { next().await; } }").awaiting_loops, [2]);
        assert_eq!(body("loop { vec![next()]; }").awaiting_loops, [0; 0]);
    }

    #[test]
    fn aliases_and_decide_are_seen_in_macros() {
        assert_eq!(
            loops_that_wait("use tokio::time::sleep as nap; loop { select! { _ = nap(d) => {} } }"),
            1
        );
        assert_eq!(body("debug!(\"{}\", retry::decide(p));").decides, [2]);
        assert_eq!(body("debug!(decide = 1, \"decide\");").decides, [0; 0]);
    }

    #[test]
    fn counters_are_seen_in_macros() {
        assert_eq!(body("stream! { for attempt in 0..3 { yield 1; } }").counters, [2]);
        assert_eq!(body("stream! { loop {\nretries += 1; } }").counters, [3]);
        assert_eq!(body("debug!(attempt, \"{}\", a + retries);").counters, [0; 0]);
    }

    #[test]
    fn getters_are_no_waits_in_macros_either() {
        assert_eq!(loops_that_wait("loop { debug!(\"{}\", policy.timeout()); }"), 0);
    }
}
