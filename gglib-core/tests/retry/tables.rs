//! Decision tables: attempt × hint × elapsed × unit.

use gglib_core::retry::{DEADLINE_ENV_VAR, MAX_ATTEMPTS_ENV_VAR, RetryPolicy, preset, table};

#[test]
fn the_default_policy() {
    insta::assert_snapshot!(table::render(&RetryPolicy::default()));
}

#[test]
fn a_tightened_policy() {
    let lookup = |name: &str| match name {
        MAX_ATTEMPTS_ENV_VAR => Some("3".to_owned()),
        DEADLINE_ENV_VAR => Some("2".to_owned()),
        _ => None,
    };
    let (policy, warnings) = RetryPolicy::layered(RetryPolicy::default(), lookup);
    assert_eq!(warnings, []);
    insta::assert_snapshot!(table::render(&policy));
}

#[test]
fn the_disabled_policy() {
    insta::assert_snapshot!(table::render(&RetryPolicy::disabled()));
}

/// The rules beside their table, so that a preset cannot change unseen in what the table does not show.
#[test]
fn every_preset() {
    for rules in preset::all() {
        insta::assert_snapshot!(rules.name, format!("{rules:#?}\n\n{}", table::render(&rules.policy)));
    }
}
