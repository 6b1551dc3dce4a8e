//! The labels. Their values are names of the catalog and closed sets; a client can choose none.

use std::fmt::{self, Write};

use gglib_core::model::ModelName;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};

/// A configured model, as a label's value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Model(pub(super) ModelName);

impl EncodeLabelValue for Model {
    fn encode(&self, encoder: &mut LabelValueEncoder<'_>) -> fmt::Result {
        encoder.write_str(self.0.as_str())
    }
}

/// `None` is the empty text, which stands for a label that is absent: the request named no configured model.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct OfModel {
    pub(super) model: Option<Model>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Ended {
    pub(super) model: Option<Model>,
    pub(super) outcome: &'static str,
    pub(super) code: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Lasted {
    pub(super) model: Option<Model>,
    pub(super) outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Happened {
    pub(super) model: Option<Model>,
    pub(super) event: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct GaveUp {
    pub(super) model: Option<Model>,
    pub(super) reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Changed {
    pub(super) model: Option<Model>,
    pub(super) to: &'static str,
}

/// Memory of an engine: known by `estimate` or `measurement`, of the kind `ram` or `vram`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct Takes {
    pub(super) model: Model,
    pub(super) known_by: &'static str,
    pub(super) kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct InState {
    pub(super) model: Model,
    pub(super) state: &'static str,
}
