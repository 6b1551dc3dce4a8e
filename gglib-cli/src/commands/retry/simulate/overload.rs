//! `gglib retry simulate overload`.

use serde_json::{Value, json};

use super::super::args::Overload;
use crate::error::CliError;
use crate::simulate::{overload, plots};

pub(super) fn show(args: &Overload) -> Result<String, CliError> {
    let (capacity, offered) = (f64::from(args.capacity), f64::from(args.offered));
    let policy = overload::every_second(args.attempts.unwrap_or(u32::MAX));
    let seconds = overload::run(&policy, capacity, vec![offered; args.seconds.into()]);
    args.picture.write(|| plots::overload(args.capacity, args.offered, args.attempts, &seconds))?;
    if args.output.json {
        let seconds: Vec<Value> =
            seconds.iter().map(|second| json!({ "load": second.load, "refused": second.refused })).collect();
        let head = json!({
            "capacity": args.capacity, "offered": args.offered, "attempts": args.attempts, "seconds": seconds,
        });
        return Ok(format!("{head}\n"));
    }
    let attempts = args.attempts.map_or("for ever".to_owned(), |attempts| format!("{attempts} attempts"));
    let mut lines = vec![
        format!("{offered} new requests a second, {capacity} can be done; {attempts}, a second apart"),
        String::new(),
        format!("{:>6}{:>14}{:>14}{:>16}", "second", "load", "refused", "amplification"),
    ];
    lines.extend((1..).zip(&seconds).map(|(number, second): (u16, _)| {
        let amplification = second.load / offered;
        format!("{number:>6}{:>14.0}{:>14.0}{amplification:>15.3}×", second.load, second.refused)
    }));
    Ok(lines.join("\n") + "\n")
}
