//! The source of randomness for callers of `decide`.

use std::cell::RefCell;

use rand::RngExt;
use rand::rngs::SmallRng;

thread_local! {
    /// Jitter has to be spread, not secret: so a small generator, seeded once by the system.
    static GENERATOR: RefCell<SmallRng> = RefCell::new(rand::make_rng());
}

/// A fresh jitter unit: uniform in [0, 1), from a generator of the thread. Not for secrets.
///
/// [`decide`](super::decide) itself draws nothing, so that tests and simulations can pass units of their own.
///
/// ```
/// assert!((0.0..1.0).contains(&gglib_core::retry::jitter_unit()));
/// ```
pub fn jitter_unit() -> f64 {
    GENERATOR.with_borrow_mut(RngExt::random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_fill_the_unit_interval() {
        let mut tenths = [0; 10];
        for _ in 0..10_000 {
            let unit = jitter_unit();
            let tenth = (0..10).find(|&tenth| unit < f64::from(tenth + 1) / 10.0).expect("a unit is below 1");
            assert!(unit >= 0.0);
            tenths[usize::try_from(tenth).expect("a tenth is not negative")] += 1;
        }
        // 1000 are expected in each, with a standard deviation of 30.
        assert!(tenths.iter().all(|count| (700..1_300).contains(count)), "{tenths:?}");
    }
}
