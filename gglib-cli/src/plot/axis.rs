//! An axis from 0 on, with round numbers at its ticks.

use super::as_f64;

/// From 0 up to a round number.
#[derive(Debug)]
pub(super) struct Axis {
    /// Between two ticks.
    step: f64,
    end: f64,
    /// Digits behind the point.
    digits: usize,
    ticks: usize,
}

impl Axis {
    /// An axis on which `most` fits, with about `ticks` ticks besides the one at 0.
    pub(super) fn up_to(most: f64, ticks: usize) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let rough = most / as_f64(ticks);
        let decade = rough.log10().floor();
        let power = 10_f64.powf(decade);
        let round = [1.0, 2.0, 5.0, 10.0].into_iter().find(|round| round * power >= rough * 0.999_999);
        let round = round.unwrap_or(10.0);
        let step = round * power;
        let digits = if round < 10.0 { -decade } else { -decade - 1.0 };
        let mut axis = Self { step, end: step, digits: 0, ticks: 1 };
        while axis.end < most * 0.999_999 {
            axis.ticks += 1;
            axis.end = step * as_f64(axis.ticks);
        }
        while as_f64(axis.digits) < digits {
            axis.digits += 1;
        }
        axis
    }

    pub(super) fn ticks(&self) -> impl Iterator<Item = f64> {
        (0..=self.ticks).map(|tick| self.step * as_f64(tick))
    }

    /// How far along the axis `value` lies, from 0 to 1.
    pub(super) fn share(&self, value: f64) -> f64 {
        value / self.end
    }

    pub(super) fn label(&self, tick: f64) -> String {
        format!("{tick:.*}", self.digits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(most: f64, ticks: usize) -> Vec<String> {
        let axis = Axis::up_to(most, ticks);
        axis.ticks().map(|tick| axis.label(tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_whatever_fits_fits() {
        assert_eq!(labels(100.0, 2), ["0", "50", "100"]);
        assert_eq!(labels(2_421.0, 2), ["0", "2000", "4000"]);
        assert_eq!(labels(0.8, 4), ["0.0", "0.2", "0.4", "0.6", "0.8"]);
        assert_eq!(labels(0.09, 2), ["0.00", "0.05", "0.10"]);
        assert_eq!(labels(1.1, 2), ["0", "1", "2"]);
        assert_eq!(labels(9.9, 1), ["0", "10"]);
        assert_eq!(labels(0.0, 2), ["0.0", "0.5", "1.0"]);
    }
}
