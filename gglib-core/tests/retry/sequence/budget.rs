//! Sequences and the budget of their target.

use super::*;

#[test]
fn c98_c108_an_exhausted_budget_is_final() {
    let rules = preset::gglib();
    let target = &mut with_budget(10, 0);
    let mut sequence = begin(&rules, 0.0, target);
    let step = fail(&mut sequence, &hinted(BUSY, 4.0), 0.0, target);
    assert_eq!(step.next, gave_up_until(GiveUpReason::BudgetExhausted, 4.0));
    assert_eq!(names(step.events), ["budget_exceeded", "exhausted"]);
    for _ in 0..19 {
        let _ = begin(&rules, 0.0, target).on_success(at(0.0), target);
    }
    // The same sequence stays refused although the next one would not be.
    assert_eq!(sequence.on_wake(at(4.0), target).next, gave_up_until(GiveUpReason::BudgetExhausted, 4.0));
    let mut next = begin(&rules, 0.0, target);
    assert_eq!(fail(&mut next, &BUSY, 0.0, target).next, wait(0.5));
}

#[test]
fn nothing_is_paid_for_a_retry_that_is_not_made() {
    let rules = preset::gglib();
    for (failure, now) in [(NOT_FOUND, 0.0), (BUSY, 60.0)] {
        let target = &mut with_budget(100, 5);
        let _ = fail(&mut begin(&rules, 0.0, target), &failure, now, target);
        assert_eq!(usage(target, now).1, 0, "{failure:?}");
    }
}

#[test]
fn retries_from_above_are_charged_and_earn_nothing() {
    let rules = preset::gglib();
    let target = &mut with_budget(100, 0);
    let headers = HeaderMap::from_iter([(
        http::HeaderName::from_static("x-stainless-retry-count"),
        HeaderValue::from_static("2"),
    )]);
    let above = RetriesAbove::parse(&headers);
    let _ = RetrySequence::begin(&rules, RetriesAbove::NONE, at(0.0), target);
    let (mut repeated, step) = RetrySequence::begin(&rules, above, at(0.0), target);
    assert_eq!(step.next, Next::Attempt);
    // One request, one retry: the earlier ones came as requests of their own.
    assert_eq!(usage(target, 0.0), (1, 1));
    assert_eq!(fail(&mut repeated, &BUSY, 0.0, target).next, gave_up(GiveUpReason::BudgetExhausted));
}
