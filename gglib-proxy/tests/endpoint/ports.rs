//! Scripted ports: what the queue and the engines do, step by step, in the test's own time.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use gglib_core::admission::{Generation, Outlook, Refusal, Snapshot};
use gglib_core::model::ModelName;
use gglib_core::ports::{
    BoxFuture, ByteStream, Lease, Liveness, Phase, Refused, Residency, Upstream, UpstreamError, Waiting,
};
use http::{Request, Response, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};

/// One thing that an engine does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Lets time pass.
    Wait(Duration),
    /// Sends the head.
    Head(StatusCode),
    /// Sends a part of the body.
    Send(String),
    /// Sends this part for ever, as fast as it is taken.
    Flood(String),
    /// Fails in this phase.
    Break(Phase),
    /// Does not take the connection in time.
    NoConnection,
    /// Nothing more, for ever.
    Hang,
    /// Panics.
    Panic,
}

/// What the queue does with a request.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// Grants a lease after this long.
    After(Duration),
    /// Refuses after this long.
    Refused(Duration, Refusal),
    /// Refuses after this long, and says when to come back.
    RefusedUntil(Duration, Refused),
    Panic,
}

/// The scripts, each list taken from the front. An empty list means a lease at once, an engine that hangs, and
/// one that lives.
#[derive(Default)]
pub(crate) struct Ports {
    turns: Mutex<VecDeque<Turn>>,
    snapshot: Snapshot,
    /// The scheduler does not answer.
    stuck: bool,
    pub(crate) stage: Arc<Stage>,
}

/// The engines, and what is going on.
#[derive(Default)]
pub(crate) struct Stage {
    answers: Mutex<VecDeque<Vec<Step>>>,
    health: Mutex<VecDeque<Liveness>>,
    /// How long it takes to check one.
    probe: Mutex<Duration>,
    /// What is said of waits, the nth to the nth question, and how long each answer takes.
    outlooks: Mutex<VecDeque<(Duration, Option<Outlook>)>>,
    /// What engines say about themselves; asking them takes nothing from `answers`.
    props: Mutex<String>,
    /// Requests that wait in the queue.
    waiting: AtomicUsize,
    /// Leases that are out.
    leases: AtomicUsize,
    /// Requests that an engine works on.
    working: AtomicUsize,
    /// The requests that were sent to an engine.
    sent: Mutex<Vec<Request<Bytes>>>,
    /// Bytes of bodies that were taken.
    taken: AtomicUsize,
    /// Engines that were retired because they hang.
    condemned: AtomicUsize,
    /// Whole answers, as the leases were told of them.
    worked: AtomicUsize,
}

impl Ports {
    /// The nth request that is sent to an engine gets the nth of `answers`.
    pub(crate) fn answering(answers: impl IntoIterator<Item = Vec<Step>>) -> Self {
        let stage = Stage { answers: Mutex::new(answers.into_iter().collect()), ..Stage::default() };
        Self { stage: Arc::new(stage), ..Self::default() }
    }

    /// The nth request gets the nth of `turns`.
    pub(crate) fn with_turns(self, turns: impl IntoIterator<Item = Turn>) -> Self {
        self.turns.lock().unwrap().extend(turns);
        self
    }

    /// The nth question how a wait stands gets the nth of `outlooks`, after this long; all others get nothing.
    pub(crate) fn with_outlooks(
        self,
        outlooks: impl IntoIterator<Item = (Duration, Option<Outlook>)>,
    ) -> Self {
        self.stage.outlooks.lock().unwrap().extend(outlooks);
        self
    }

    /// The scheduler says that this is how things are.
    pub(crate) fn showing(self, snapshot: Snapshot) -> Self {
        Self { snapshot, ..self }
    }

    /// The scheduler does not answer, and that is known after five seconds.
    pub(crate) fn stuck(self) -> Self {
        Self { stuck: true, ..self }
    }

    /// Engines say this about themselves.
    pub(crate) fn with_props(self, props: &str) -> Self {
        props.clone_into(&mut self.stage.props.lock().unwrap());
        self
    }

    /// The nth suspicion comes to the nth of `health`.
    pub(crate) fn with_health(self, health: impl IntoIterator<Item = Liveness>) -> Self {
        self.stage.health.lock().unwrap().extend(health);
        self
    }
}

impl Ports {
    /// Each suspicion takes this long to check.
    pub(crate) fn with_slow_health(self, probe: Duration) -> Self {
        *self.stage.probe.lock().unwrap() = probe;
        self
    }
}

impl Stage {
    /// How many are waiting, leased and worked on.
    pub(crate) fn going_on(&self) -> [usize; 3] {
        [&self.waiting, &self.leases, &self.working].map(|count| count.load(Ordering::SeqCst))
    }

    pub(crate) fn sent(&self) -> usize {
        self.sent.lock().unwrap().len()
    }

    /// The body of the request that was sent last.
    pub(crate) fn last_body(&self) -> Value {
        serde_json::from_slice(self.sent.lock().unwrap().last().unwrap().body()).unwrap()
    }

    /// And where it was sent to.
    pub(crate) fn last_path(&self) -> String {
        self.sent.lock().unwrap().last().unwrap().uri().path().to_owned()
    }

    /// The bodies of the requests that were sent.
    pub(crate) fn bodies(&self) -> Vec<String> {
        let sent = self.sent.lock().unwrap();
        sent.iter().map(|request| String::from_utf8(request.body().to_vec()).unwrap()).collect()
    }

    pub(crate) fn condemned(&self) -> usize {
        self.condemned.load(Ordering::SeqCst)
    }

    pub(crate) fn worked(&self) -> usize {
        self.worked.load(Ordering::SeqCst)
    }

    pub(crate) fn taken(&self) -> usize {
        self.taken.load(Ordering::SeqCst)
    }
}

/// Counts as long as it lives.
struct Counted(Arc<Stage>, fn(&Stage) -> &AtomicUsize);

impl Counted {
    fn new(stage: &Arc<Stage>, which: fn(&Stage) -> &AtomicUsize) -> Self {
        which(stage).fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(stage), which)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        (self.1)(&self.0).fetch_sub(1, Ordering::SeqCst);
    }
}

impl Residency for Ports {
    fn enter(&self, _: ModelName) -> Box<dyn Waiting> {
        let turn = self.turns.lock().unwrap().pop_front().unwrap_or(Turn::After(Duration::ZERO));
        Box::new(Place {
            turn,
            began: Instant::now(),
            waiting: Counted::new(&self.stage, |stage| &stage.waiting),
        })
    }

    fn snapshot(&self) -> BoxFuture<'_, Option<Snapshot>> {
        Box::pin(async {
            if self.stuck {
                sleep(Duration::from_secs(5)).await;
                return None;
            }
            Some(self.snapshot.clone())
        })
    }
}

struct Place {
    turn: Turn,
    began: Instant,
    waiting: Counted,
}

impl Waiting for Place {
    fn granted(&mut self) -> BoxFuture<'_, Result<Box<dyn Lease>, Refused>> {
        Box::pin(async move {
            match &self.turn {
                Turn::After(wait) => sleep_until(self.began + *wait).await,
                Turn::Refused(wait, refusal) => {
                    sleep_until(self.began + *wait).await;
                    return Err(refusal.clone().into());
                }
                Turn::RefusedUntil(wait, refused) => {
                    sleep_until(self.began + *wait).await;
                    return Err(refused.clone());
                }
                Turn::Panic => panic!("a fault in the queue"),
            }
            let leased = Counted::new(&self.waiting.0, |stage| &stage.leases);
            Ok(Box::new(Leased(leased)) as Box<dyn Lease>)
        })
    }

    fn outlook(&self) -> BoxFuture<'_, Option<Outlook>> {
        Box::pin(async {
            let (pause, outlook) = self.waiting.0.outlooks.lock().unwrap().pop_front().unwrap_or_default();
            sleep(pause).await;
            outlook
        })
    }
}

struct Leased(Counted);

impl Lease for Leased {
    fn generation(&self) -> Generation {
        Generation(1)
    }

    fn upstream(&self) -> &dyn Upstream {
        self
    }

    fn confirm(&self) -> BoxFuture<'_, Liveness> {
        let health = self.0.0.health.lock().unwrap().pop_front();
        let probe = *self.0.0.probe.lock().unwrap();
        Box::pin(async move {
            sleep(probe).await;
            health.unwrap_or(Liveness::Alive)
        })
    }

    fn condemn(&self) -> BoxFuture<'_, ()> {
        self.0.0.condemned.fetch_add(1, Ordering::SeqCst);
        Box::pin(async {})
    }

    fn failed(&self) -> BoxFuture<'_, Liveness> {
        self.confirm()
    }

    fn worked(&self) {
        self.0.0.worked.fetch_add(1, Ordering::SeqCst);
    }
}

impl Upstream for Leased {
    fn send(&self, request: Request<Bytes>) -> BoxFuture<'_, Result<Response<ByteStream>, UpstreamError>> {
        let stage = &self.0.0;
        if request.uri().path() == "/props" {
            let props = Bytes::from(stage.props.lock().unwrap().clone());
            let body: ByteStream = Box::pin(stream::iter([Ok(props)]));
            return Box::pin(async { Ok(Response::new(body)) });
        }
        stage.sent.lock().unwrap().push(request);
        let steps = stage.answers.lock().unwrap().pop_front().unwrap_or_else(|| vec![Step::Hang]);
        let mut play = Play { steps: steps.into(), working: Counted::new(stage, |stage| &stage.working) };
        Box::pin(async move {
            match play.next().await {
                Some(Step::Head(status)) => {
                    let mut response = Response::new(play.into_body());
                    *response.status_mut() = status;
                    Ok(response)
                }
                Some(Step::Break(phase)) => Err(UpstreamError::new(phase, "scripted")),
                Some(Step::NoConnection) => {
                    Err(UpstreamError::new(Phase::Connect, io::Error::from(io::ErrorKind::TimedOut)))
                }
                other => panic!("{other:?} before the head"),
            }
        })
    }
}

/// The rest of an answer.
struct Play {
    steps: VecDeque<Step>,
    working: Counted,
}

impl Play {
    /// The next step that others see.
    async fn next(&mut self) -> Option<Step> {
        loop {
            match self.steps.pop_front()? {
                Step::Wait(pause) => sleep(pause).await,
                Step::Hang => std::future::pending().await,
                Step::Panic => panic!("a fault in an answer"),
                Step::Flood(part) => {
                    self.steps.push_front(Step::Flood(part.clone()));
                    return Some(Step::Send(part));
                }
                other => return Some(other),
            }
        }
    }

    fn into_body(self) -> ByteStream {
        Box::pin(stream::unfold(self, |mut play| async move {
            let item = match play.next().await? {
                Step::Send(part) => {
                    play.working.0.taken.fetch_add(part.len(), Ordering::SeqCst);
                    Ok(Bytes::from(part))
                }
                Step::Break(phase) => Err(UpstreamError::new(phase, "scripted")),
                other => panic!("{other:?} in the body"),
            };
            Some((item, play))
        }))
    }
}

/// The usual start of an answer: the head, and the chunk with the role.
pub(crate) fn opening() -> Vec<Step> {
    vec![Step::Head(StatusCode::OK), Step::Send(event(r#"{"role":"assistant","content":null}"#, "null"))]
}

/// One chunk with text.
pub(crate) fn content(text: &str) -> Step {
    Step::Send(event(&format!(r#"{{"content":"{text}"}}"#), "null"))
}

/// The chunk with which an answer finishes.
pub(crate) fn finish() -> Step {
    Step::Send(event("{}", r#""stop""#))
}

pub(crate) fn done() -> Step {
    Step::Send("data: [DONE]\n\n".to_owned())
}

/// A progress of the prompt, in tokens.
pub(crate) fn progress(processed: u32) -> Step {
    Step::Send(format!(
        "data: {{\"id\":\"x\",\"choices\":[],\"prompt_progress\":{{\"total\":1000,\"processed\":{processed}}}}}\n\n"
    ))
}

/// The event of a chunk.
pub(crate) fn event(delta: &str, finish_reason: &str) -> String {
    format!(
        "data: {{\"id\":\"x\",\"object\":\"chat.completion.chunk\",\"created\":7,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish_reason}}}]}}\n\n"
    )
}
