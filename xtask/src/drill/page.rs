//! The page of the book that is made of a drill.

use super::scenario::Scenario;
use super::stage;
use crate::tables::markdown::{Page, table};

/// Its place in the workspace.
pub(super) const PATH: &str = "docs/src/reference/drill.md";

/// What is not played, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    (
        "S06, S07: failing over to a second provider",
        "there is one engine; the rows above show how it is replaced instead",
    ),
    (
        "S14: a second provider that rejects the prefix",
        "the same; the row above has a second engine that dies over it",
    ),
    (
        "S01, S02: a provider's 429",
        "a local engine has no rate limit; the 429 is gglib's own, when its queue is full",
    ),
    (
        "T6: a request that needs other launch options",
        "options belong to a model, never to a request; see T7 and T32",
    ),
    ("T30: SIGKILL of gglib itself", "no request outlives it; that no engine does is tested"),
    (
        "T35: an engine that grows with each request",
        "no request sees it: one that has outgrown `memory.growth` is stopped when idle and launched anew, which is tested",
    ),
];

const INTRODUCTION: &str = "\
What clients see when something goes wrong with an engine. Each row has been played as it stands here: a `gglib serve` of
its own, a fake engine that misbehaves as it is told, a client that repeats nothing; CI plays all of them.
[`gglib drill`](../guide/drill.md) does some of it to your own engine. Each end came within
[the promised bound](../concepts/promise.md). After each row the endpoint had to answer again, at the latest after
the `Retry-After` that it gave itself, and to hold nothing.

*From* names the source: T are faults that users of such servers met, D and F those of one gateway of this kind, S the
scenarios of failoverbench. *Asked* counts how often the engine was asked, where that matters. An error of a stream
is an event once the stream has begun, after 2 s at the latest, and a status before.";

const SETTINGS: &str = "\
So that nobody has to wait for the shipped timers, every scenario runs with these settings, and with a context of 2048
tokens:";

/// The page for scenarios that have been played and were as they should be.
pub(super) fn render(scenarios: &[Scenario]) -> String {
    let mut page = Page::written_by("`cargo xtask drill --fake`", "Drill", "xtask/src/drill");
    page.add(INTRODUCTION);
    page.add(table(
        ["What happens", "From", "Request", "What the client sees", "Asked", "Bound held"],
        scenarios.iter().map(|scenario| {
            let tries = scenario.tries.map(|tries| tries.to_string()).unwrap_or_default();
            let asked = scenario.asked.to_string();
            [scenario.name, scenario.sources, &asked, scenario.expected, &tries, "yes"].map(str::to_owned)
        }),
    ));
    page.add("## Changed settings");
    page.add(SETTINGS);
    let mut own: Vec<_> = scenarios.iter().flat_map(Scenario::own_settings).collect();
    own.dedup();
    page.add(format!("```toml\n{}```", stage::changed()));
    page.add("Some change more:");
    page.add(own.concat());
    page.add("## What is left out");
    let rows = LEFT_OUT.iter().map(|(what, why)| [(*what).to_owned(), (*why).to_owned()]);
    page.add(table(["What", "Why"], rows));
    page.finish()
}
