//! `cargo xtask drill --fake`: every fault of an engine that a request can see, one by one, on the scripted fake engine.
//!
//! Each scenario has a `gglib serve` of its own, as a person runs it, and engines that misbehave as their script says.
//! What its client sees is judged by [the promise](gglib_cli::drill), and must be what the scenario says; afterwards
//! the endpoint must serve again and hold nothing. A page of the book is made of what came out.

#![expect(clippy::print_stdout, reason = "says what it sees while it works")]

use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, ensure};
use gglib_cli::drill::scorecard::{Row, Scorecard};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::scenario::Scenario;
use crate::{endpoint, tables};

mod answers;
mod loads;
mod page;
mod queues;
mod scenario;
mod stage;
mod swaps;

/// Scenarios at once: most of what they do is to wait.
const AT_ONCE: usize = 8;

/// What to play, and what to do with what came out.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only the scenarios whose name or source has this in it; the page is then left alone.
    pub scenario: Option<String>,
    /// Compare the page instead of writing it.
    pub check: bool,
    /// Print JSON for programs.
    pub json: bool,
}

/// What a scenario came to.
struct Played {
    scenario: Scenario,
    row: Row,
}

impl Played {
    fn is_as_expected(&self) -> bool {
        self.row.is_held() && self.scenario.expects(&self.row.outcome)
    }
}

/// Plays the scenarios and says whether each was as it should be, and the page too.
///
/// # Errors
/// When something does not build or start, or no scenario has the name.
pub fn run(root: &Path, options: &Options) -> Result<bool> {
    endpoint::build(root)?;
    let all = scenarios();
    let wanted = options.scenario.as_deref().unwrap_or_default();
    let chosen: Vec<_> = all.into_iter().filter(|scenario| scenario.matches(wanted)).collect();
    ensure!(!chosen.is_empty(), "no scenario is called `{wanted}`; see `cargo xtask drill --fake`");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let played = runtime.block_on(play(chosen, options.json))?;
    let as_expected = show(&played, options.json);
    if !as_expected || options.scenario.is_some() {
        return Ok(as_expected);
    }
    let scenarios: Vec<_> = played.into_iter().map(|one| one.scenario).collect();
    let text = page::render(&scenarios);
    if options.check {
        let is_current = tables::is_current(&root.join(page::PATH), &text);
        if !is_current {
            println!("{}: the page is stale\n    -> run `cargo xtask drill --fake`", page::PATH);
        }
        return Ok(is_current);
    }
    if tables::write_page(root, page::PATH, &text)? && !options.json {
        println!("wrote {}", page::PATH);
    }
    Ok(true)
}

/// All scenarios, in the order of the page.
fn scenarios() -> Vec<Scenario> {
    [answers::scenarios(), loads::scenarios(), queues::scenarios(), swaps::scenarios()]
        .into_iter()
        .flatten()
        .collect()
}

async fn play(scenarios: Vec<Scenario>, quiet: bool) -> Result<Vec<Played>> {
    let places = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for (number, scenario) in scenarios.into_iter().enumerate() {
        let places = Arc::clone(&places);
        running.spawn(async move {
            let _place = places.acquire_owned().await?;
            let row = scenario.run().await?;
            anyhow::Ok((number, Played { scenario, row }))
        });
    }
    if !quiet {
        print!("{}", Scorecard::headings());
    }
    let mut played = Vec::new();
    while let Some(ended) = running.join_next().await {
        let (number, one) = ended??;
        if !quiet {
            print!("{}", one.row.to_text());
        }
        played.push((number, one));
    }
    played.sort_by_key(|(number, _)| *number);
    Ok(played.into_iter().map(|(_, one)| one).collect())
}

/// Prints what it all came to, and says whether it is as expected.
fn show(played: &[Played], json: bool) -> bool {
    let card = Scorecard { rows: played.iter().map(|one| one.row.clone()).collect() };
    let wrong: Vec<_> = played.iter().filter(|one| !one.is_as_expected()).collect();
    if json {
        let mut value = card.to_json();
        let rows = value["rows"].as_array_mut().into_iter().flatten();
        for (row, one) in rows.zip(played) {
            row["sources"] = one.scenario.sources.into();
            row["expected"] = one.scenario.expected.into();
            row["as_expected"] = one.is_as_expected().into();
        }
        value["as_expected"] = wrong.is_empty().into();
        println!("{value:#}");
        return wrong.is_empty();
    }
    println!("\n{}", card.verdict());
    println!("{} of {} scenarios are as they should be.", played.len() - wrong.len(), played.len());
    println!("Changed from the shipped defaults, so that nobody has to wait:\n{}", stage::changed());
    for one in &wrong {
        println!(
            "NOT AS IT SHOULD BE: {}: {} instead of {}",
            one.row.scenario, one.row.outcome, one.scenario.expected
        );
    }
    wrong.is_empty()
}
