//! Whether restoring works.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::Conversation;
use crate::admission::Generation;
use crate::model::ModelName;

/// How many times longer than the remembered one a prompt may be to be judged. An engine with several slots takes
/// the restored one only for a prompt of which it holds a tenth or more.
const COMPARABLE: u64 = 8;

/// What an engine says about one prompt, in tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptCounts {
    /// Its length.
    pub prompt_tokens: u64,
    /// How many of these were in the cache.
    pub cached_tokens: u64,
}

/// The last conversation that a slot was used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Remembered {
    /// Its [`Conversation::digest`].
    pub digest: u64,
    /// The length of its prompt, in tokens.
    pub prompt_tokens: u64,
}

/// What the first answer of a restored engine has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Restoring works for this model.
    Verified,
    /// The engine said that it had restored the slot, and read the prompt from its beginning.
    Lied,
}

/// Follows engines from their load to their end, and judges each restore once.
///
/// The proof needs no trust in what the restore itself has answered. A restored engine is a new process: at first
/// nothing can be in its cache but what was restored. So a first request of which some was cached proves the
/// restore; and one that continues the remembered conversation, of which nothing was cached, disproves it. Any
/// other first request shows nothing: somebody may simply have begun another conversation.
#[derive(Clone, Debug, Default)]
pub struct Verdicts {
    engines: BTreeMap<Generation, Watch>,
    switched_off: BTreeSet<ModelName>,
}

#[derive(Clone, Debug)]
struct Watch {
    model: ModelName,
    restore: Restore,
    /// Requests since the load.
    asked: u32,
    /// The conversation of the last whole answer, unless another request has been sent since.
    last: Option<Remembered>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Restore {
    /// Nothing was restored, or its verdict is given, or there can be none any more.
    Settled,
    /// The first answer will tell.
    Open(Option<Remembered>),
}

impl Verdicts {
    /// An engine is ready in which nothing was restored.
    pub fn loaded(&mut self, generation: Generation, model: ModelName) {
        self.watch(generation, model, Restore::Settled);
    }

    /// An engine is ready in which at least one slot was restored; `remembered` is the last conversation of it.
    pub fn restored(&mut self, generation: Generation, model: ModelName, remembered: Option<Remembered>) {
        self.watch(generation, model, Restore::Open(remembered));
    }

    /// A request is about to be sent. Unknown generations are ignored, here and below.
    pub fn asked(&mut self, generation: Generation) {
        if let Some(watch) = self.engines.get_mut(&generation) {
            watch.asked = watch.asked.saturating_add(1);
            watch.last = None;
        }
    }

    /// An answer is whole. A verdict comes with its model; after [`Verdict::Lied`] the model is switched off.
    pub fn answered(
        &mut self,
        generation: Generation,
        conversation: Option<&Conversation>,
        counts: PromptCounts,
    ) -> Option<(ModelName, Verdict)> {
        let watch = self.engines.get_mut(&generation)?;
        let PromptCounts { prompt_tokens, .. } = counts;
        watch.last =
            conversation.map(|conversation| Remembered { digest: conversation.digest(), prompt_tokens });
        let restore = std::mem::replace(&mut watch.restore, Restore::Settled);
        // With a second request under way, what was cached may be what the other one has read.
        let (Restore::Open(remembered), 1) = (restore, watch.asked) else { return None };
        let verdict = judge(remembered, conversation, counts)?;
        let model = watch.model.clone();
        if verdict == Verdict::Lied {
            self.switch_off(model.clone());
        }
        Some((model, verdict))
    }

    /// What the slots of an engine hold, as far as it is known.
    pub fn remembered(&self, generation: Generation) -> Option<Remembered> {
        self.engines.get(&generation)?.last
    }

    /// The engine has ended.
    pub fn ended(&mut self, generation: Generation) {
        self.engines.remove(&generation);
    }

    /// Nothing of this model is to be saved or restored any more.
    pub fn switch_off(&mut self, model: ModelName) {
        self.switched_off.insert(model);
    }

    /// The model may be tried again.
    pub fn switch_on(&mut self, model: &ModelName) {
        self.switched_off.remove(model);
    }

    /// Whether the model has been switched off.
    pub fn is_switched_off(&self, model: &ModelName) -> bool {
        self.switched_off.contains(model)
    }

    /// The models that have been switched off, in the order of their names.
    pub fn switched_off(&self) -> impl Iterator<Item = &ModelName> {
        self.switched_off.iter()
    }

    fn watch(&mut self, generation: Generation, model: ModelName, restore: Restore) {
        self.engines.insert(generation, Watch { model, restore, asked: 0, last: None });
    }
}

fn judge(
    remembered: Option<Remembered>,
    conversation: Option<&Conversation>,
    counts: PromptCounts,
) -> Option<Verdict> {
    if counts.cached_tokens > 0 {
        return Some(Verdict::Verified);
    }
    let (remembered, conversation) = (remembered?, conversation?);
    let comparable = counts.prompt_tokens <= remembered.prompt_tokens.saturating_mul(COMPARABLE);
    (comparable && conversation.continues(remembered.digest)).then_some(Verdict::Lied)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const FIRST: Generation = Generation(1);
    const SECOND: Generation = Generation(2);

    fn model() -> ModelName {
        ModelName::new("m")
    }

    fn turn(messages: &str) -> Conversation {
        Conversation::of(format!("{{\"messages\":[{messages}]}}").as_bytes()).unwrap()
    }

    fn counts(prompt_tokens: u64, cached_tokens: u64) -> PromptCounts {
        PromptCounts { prompt_tokens, cached_tokens }
    }

    /// The verdicts after one turn of "1" with 1,000 tokens on the first engine, restored into the second.
    fn swapped() -> Verdicts {
        let mut verdicts = Verdicts::default();
        verdicts.loaded(FIRST, model());
        verdicts.asked(FIRST);
        assert_eq!(verdicts.answered(FIRST, Some(&turn("1")), counts(1000, 0)), None);
        let remembered = verdicts.remembered(FIRST);
        assert_eq!(remembered, Some(Remembered { digest: turn("1").digest(), prompt_tokens: 1000 }));
        verdicts.ended(FIRST);
        verdicts.restored(SECOND, model(), remembered);
        verdicts
    }

    fn verdict(conversation: Option<&Conversation>, counts: PromptCounts) -> Option<Verdict> {
        let mut verdicts = swapped();
        verdicts.asked(SECOND);
        let verdict = verdicts.answered(SECOND, conversation, counts).map(|(_, verdict)| verdict);
        assert_eq!(verdicts.is_switched_off(&model()), verdict == Some(Verdict::Lied));
        verdict
    }

    #[test]
    fn the_first_answer_proves_disproves_or_shows_nothing() {
        let next = turn("1,2,3");
        assert_eq!(verdict(Some(&next), counts(1100, 1000)), Some(Verdict::Verified));
        assert_eq!(verdict(Some(&next), counts(1100, 0)), Some(Verdict::Lied));
        assert_eq!(verdict(Some(&turn("1")), counts(1000, 0)), Some(Verdict::Lied));
        // A new process has cached nothing else, whoever asks.
        assert_eq!(verdict(Some(&turn("9")), counts(50, 20)), Some(Verdict::Verified));
        assert_eq!(verdict(Some(&turn("9")), counts(50, 0)), None);
        assert_eq!(verdict(None, counts(50, 0)), None);
        assert_eq!(verdict(Some(&next), counts(8001, 0)), None);
    }

    #[test]
    fn only_the_first_request_on_its_own_is_judged() {
        let next = turn("1,2,3");
        let mut verdicts = swapped();
        verdicts.asked(SECOND);
        verdicts.asked(SECOND);
        assert_eq!(verdicts.answered(SECOND, Some(&next), counts(1100, 0)), None);
        assert_eq!(verdicts.answered(SECOND, Some(&next), counts(1100, 0)), None);

        let mut verdicts = swapped();
        verdicts.asked(SECOND);
        assert_eq!(verdicts.answered(SECOND, Some(&turn("9")), counts(50, 0)), None);
        verdicts.asked(SECOND);
        assert_eq!(verdicts.answered(SECOND, Some(&next), counts(1100, 0)), None);
    }

    #[test]
    fn what_a_slot_holds_is_unknown_from_a_question_to_its_answer() {
        let mut verdicts = swapped();
        assert_eq!(verdicts.remembered(SECOND), None);
        verdicts.asked(SECOND);
        verdicts.answered(SECOND, Some(&turn("1")), counts(1000, 990));
        assert!(verdicts.remembered(SECOND).is_some());
        verdicts.asked(SECOND);
        // Its client leaves in the middle.
        assert_eq!(verdicts.remembered(SECOND), None);
        verdicts.answered(SECOND, None, counts(5, 0));
        assert_eq!(verdicts.remembered(SECOND), None);
    }

    #[test]
    fn an_engine_without_a_restore_and_an_unknown_one_are_never_judged() {
        let mut verdicts = Verdicts::default();
        verdicts.loaded(FIRST, model());
        for generation in [FIRST, SECOND] {
            verdicts.asked(generation);
            assert_eq!(verdicts.answered(generation, Some(&turn("1")), counts(1000, 0)), None);
        }
        assert_eq!(verdicts.remembered(SECOND), None);
    }

    proptest! {
        /// An engine that serves its cache truly is never accused, whatever is asked in which order.
        #[test]
        fn an_honest_engine_is_never_switched_off(
            turns in prop::collection::vec((0..3_u64, 1..5_usize, any::<bool>(), any::<bool>()), 1..20),
        ) {
            let messages = |talk: u64, length: usize| (0..length as u64).map(|n| (talk * 100 + n).to_string()).collect::<Vec<_>>();
            let mut verdicts = Verdicts::default();
            let mut generation = FIRST;
            let mut slot: Vec<String> = Vec::new();
            verdicts.loaded(generation, model());
            for (talk, length, finishes, swaps) in turns {
                let prompt = messages(talk, length);
                let conversation = turn(&prompt.join(","));
                let cached = slot.iter().zip(&prompt).take_while(|(a, b)| a == b).count() as u64;
                verdicts.asked(generation);
                slot.clone_from(&prompt);
                if finishes {
                    let verdict = verdicts.answered(generation, Some(&conversation), counts(prompt.len() as u64, cached));
                    prop_assert!(verdict.is_none_or(|(_, verdict)| verdict == Verdict::Verified));
                }
                if swaps {
                    let remembered = verdicts.remembered(generation);
                    verdicts.ended(generation);
                    generation = Generation(generation.0 + 1);
                    verdicts.restored(generation, model(), remembered);
                }
            }
            prop_assert!(!verdicts.is_switched_off(&model()));
        }
    }
}
