//! The workloads: who asks what of whom, and when.

use std::time::Duration;

use gglib_core::admission::{SWITCH_COST_FACTOR, Settings, TURN_LIMIT};
use gglib_core::model::ModelName;

use crate::simulate::random::Random;

/// Clients and models that share a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Many requests at once, every other one for another model.
    Alternating,
    /// Two crowds, each of which keeps a model busy.
    Overlapping,
    /// A conversation, and a crowd that bursts in and wants two other models.
    Burst,
    /// Questions that are embedded and then answered, while documents are embedded all the time.
    Embeddings,
    /// Agents that ask what they need of three models, two of which fit.
    Agents,
    /// Long answers of one model, and people who chat with another one.
    Jobs,
}

/// One workload in every detail.
#[derive(Clone, Debug)]
pub(super) struct Scene {
    /// Engines that fit at once.
    pub(super) slots: usize,
    pub(super) models: Vec<Model>,
    /// What each client asks, one after the other.
    pub(super) clients: Vec<Vec<Call>>,
}

/// A model and its engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Model {
    name: &'static str,
    /// From the launch of its engine until it is ready.
    pub(super) load: Duration,
    /// From the order to stop its engine until the memory is back.
    pub(super) stop: Duration,
    /// Answers at once.
    pub(super) parallel: u32,
}

/// One request of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    /// The number of its model.
    pub(super) model: usize,
    /// Since the one before was over.
    pub(super) pause: Duration,
    /// What the answer takes.
    pub(super) answer: Duration,
}

impl Workload {
    /// Every workload.
    pub const ALL: [Self; 6] =
        [Self::Alternating, Self::Overlapping, Self::Burst, Self::Embeddings, Self::Agents, Self::Jobs];

    /// The workload as a name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Alternating => "alternating",
            Self::Overlapping => "overlapping",
            Self::Burst => "burst",
            Self::Embeddings => "embeddings",
            Self::Agents => "agents",
            Self::Jobs => "jobs",
        }
    }

    /// What it consists of, in a few words.
    pub const fn about(self) -> &'static str {
        match self {
            Self::Alternating => "40 requests at once, for two models by turns",
            Self::Overlapping => "two crowds of 4 clients, each of which keeps one model busy",
            Self::Burst => "2 people chat with one model; after a minute, 40 requests for two others",
            Self::Embeddings => "3 clients embed questions and chat, 2 others embed documents",
            Self::Agents => "11 agents at three models, two of which fit",
            Self::Jobs => "2 clients with long jobs, 3 people who chat with another model",
        }
    }

    /// The longest time for which the oldest waiter of a model waits by gglib's rule; see
    /// [`gglib_core::admission`] on fairness.
    pub fn bound(self, seed: u64) -> Duration {
        self.scene(seed).bound()
    }

    pub(super) fn scene(self, seed: u64) -> Scene {
        let mut random = Random::new(seed);
        match self {
            Self::Alternating => {
                let mut scene = Scene::new(1, vec![model("a", 8, 1), model("b", 8, 1)]);
                scene.add(40, 1, |client, _| Call {
                    model: client % 2,
                    pause: Duration::ZERO,
                    answer: random.between(ms(1_000)..ms(3_000)),
                });
                scene
            }
            Self::Overlapping => {
                let mut scene = Scene::new(1, vec![model("a", 8, 2), model("b", 8, 2)]);
                for model in 0..2 {
                    scene.add(4, 100, |_, call| Call {
                        model,
                        pause: random.between(if call == 0 { ms(0)..ms(3_000) } else { ms(0)..ms(1_000) }),
                        answer: random.between(ms(2_000)..ms(6_000)),
                    });
                }
                scene
            }
            Self::Burst => {
                let mut scene = Scene::new(1, vec![model("a", 8, 2), model("b", 8, 4), model("c", 4, 4)]);
                scene.add(2, 20, |_, _| Call {
                    model: 0,
                    pause: random.between(ms(500)..ms(4_000)),
                    answer: random.between(ms(3_000)..ms(9_000)),
                });
                scene.add(40, 1, |client, _| Call {
                    model: 1 + client % 2,
                    pause: random.between(ms(60_000)..ms(61_000)),
                    answer: random.between(ms(2_000)..ms(6_000)),
                });
                scene
            }
            Self::Embeddings => {
                let mut scene = Scene::new(1, vec![model("embed", 2, 4), model("chat", 10, 2)]);
                scene.add(3, 40, |_, call| {
                    if call % 2 == 0 {
                        let pause = random.between(ms(2_000)..ms(10_000));
                        Call { model: 0, pause, answer: random.between(ms(50)..ms(150)) }
                    } else {
                        Call {
                            model: 1,
                            pause: Duration::ZERO,
                            answer: random.between(ms(4_000)..ms(12_000)),
                        }
                    }
                });
                scene.add(2, 1_000, |_, _| Call {
                    model: 0,
                    pause: Duration::ZERO,
                    answer: random.between(ms(200)..ms(600)),
                });
                scene
            }
            Self::Agents => {
                let models = vec![model("coder", 12, 2), model("planner", 8, 2), model("small", 3, 4)];
                let mut scene = Scene::new(2, models);
                scene.add(11, 20, |_, _| {
                    let (model, answer) = match random.unit() {
                        ..0.6 => (0, ms(3_000)..ms(12_000)),
                        ..0.8 => (1, ms(4_000)..ms(8_000)),
                        _ => (2, ms(500)..ms(2_000)),
                    };
                    Call { model, pause: random.between(ms(0)..ms(3_000)), answer: random.between(answer) }
                });
                scene
            }
            Self::Jobs => {
                let mut scene = Scene::new(1, vec![model("long", 15, 2), model("chat", 5, 2)]);
                scene.add(2, 12, |_, _| Call {
                    model: 0,
                    pause: random.between(ms(0)..ms(2_000)),
                    answer: random.between(ms(45_000)..ms(90_000)),
                });
                scene.add(3, 20, |_, _| Call {
                    model: 1,
                    pause: random.between(ms(5_000)..ms(20_000)),
                    answer: random.between(ms(1_000)..ms(4_000)),
                });
                scene
            }
        }
    }
}

impl Scene {
    fn new(slots: usize, models: Vec<Model>) -> Self {
        Self { slots, models, clients: Vec::new() }
    }

    /// Adds so many clients with so many calls each; a call is told its client's number, and its own.
    fn add(&mut self, clients: usize, calls: usize, mut call: impl FnMut(usize, usize) -> Call) {
        for client in 0..clients {
            self.clients.push((0..calls).map(|number| call(client, number)).collect());
        }
    }

    pub(super) fn model(&self, name: &ModelName) -> &Model {
        let named = |model: &&Model| model.name == name.as_str();
        self.models.iter().find(named).expect("only the scene's models are asked for")
    }

    fn bound(&self) -> Duration {
        let longest = |time: fn(&Model) -> Duration| self.models.iter().map(time).max().unwrap_or_default();
        let switch = longest(|model| model.stop) + longest(|model| model.load);
        let quantum = Settings::default().quantum.max(switch * SWITCH_COST_FACTOR);
        let answer = self.clients.iter().flatten().map(|call| call.answer).max().unwrap_or_default();
        let models = u32::try_from(self.models.len()).unwrap_or(u32::MAX);
        models * (TURN_LIMIT * quantum + switch + answer)
    }
}

impl Model {
    pub(super) fn name(&self) -> ModelName {
        ModelName::new(self.name)
    }
}

/// A model that loads in so many seconds, and stops in one.
const fn model(name: &'static str, load: u64, parallel: u32) -> Model {
    Model { name, load: Duration::from_secs(load), stop: Duration::from_secs(1), parallel }
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}
