//! The requests that ended last.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use gglib_core::model::ModelName;

use crate::account::Particulars;

/// How many are remembered.
const KEPT: usize = 20;

/// The last requests of the endpoint, the latest first. Nothing of what was asked or answered is among it.
#[derive(Debug, Default)]
pub(super) struct Recents(Mutex<VecDeque<Recent>>);

/// One request that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Recent {
    pub(crate) ended_at: SystemTime,
    /// Its `x-request-id`.
    pub(crate) id: Box<str>,
    /// `None` if it named no configured model.
    pub(crate) model: Option<ModelName>,
    pub(crate) outcome: &'static str,
    /// Of its error; empty if there was none.
    pub(crate) code: &'static str,
    /// From its head to the end of its answer.
    pub(crate) duration: Duration,
    pub(crate) particulars: Particulars,
}

impl Recents {
    pub(super) fn push(&self, recent: Recent) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.truncate(KEPT - 1);
        kept.push_front(recent);
    }

    pub(super) fn list(&self) -> Vec<Recent> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}
