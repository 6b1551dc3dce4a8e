//! A run by hand: readers that are slow, and such that are as quick as can be.

use std::task::{Context, Wake, Waker};
use std::time::Duration;

use futures_util::future::BoxFuture;
use gglib_core::idempotency::{Arrival, Scope};
use gglib_core::moment::Moment;
use http::HeaderValue;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use super::*;
use crate::plain::Collected;

/// A client comes with the key that all come with.
fn arrive(all: &Idempotency) -> Arrival<Arc<Run>> {
    let scope = Scope { client: [].into(), key: HeaderValue::from_static("k") };
    all.runs().arrive(scope, 0, Moment::ORIGIN, || Arc::new(Run::new(Account::default())))
}

/// A run, and two who are attached to it.
fn attached() -> (Arc<Run>, [Attachment; 2]) {
    let all = Arc::<Idempotency>::default();
    let attach = || {
        let (Arrival::Begin(id, run) | Arrival::Attach(id, run)) = arrive(&all) else {
            unreachable!("the same request each time")
        };
        (Arc::clone(&run), Attachment::new(Arc::clone(&all), id, run, Instant::now()).unwrap())
    };
    let [(run, one), (_, other)] = [attach(), attach()];
    (run, [one, other])
}

fn quarter() -> Piece {
    Piece::Part(Item::Chunk(vec![b'x'; REPLAY / 4].into()))
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_while_a_reader_is_behind_has_reached_nobody() {
    let (run, [fast, _slow]) = attached();
    let mut recorder = Recorder(run);
    let mut chunk = async || {
        let chunk = recorder.chunk(vec![b'x'; REPLAY / 4].into());
        timeout(Duration::from_secs(1), chunk).await.is_ok()
    };
    let (mut given, mut taken) = (0, 0);
    while chunk().await {
        given += 1;
    }
    while let Some(piece) = fast.take() {
        assert!(piece.unwrap().is_some());
        taken += 1;
    }
    assert_eq!((given, taken), (4, 4));
}

/// A reader that runs at the moment in which it is woken, as one on another worker may.
struct Prompt(Mutex<Option<BoxFuture<'static, Result<(), ApiError>>>>);

impl Wake for Prompt {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut reader = self.0.lock().unwrap();
        let polled = reader.as_mut().map(|reader| reader.as_mut().poll(&mut Context::from_waker(&waker)));
        if polled.is_some_and(|polled| polled.map(Result::unwrap).is_ready()) {
            *reader = None;
        }
    }
}

#[tokio::test]
async fn an_answer_is_kept_however_early_its_last_reader_leaves() {
    let whole = Piece::Whole(Collected { body: Bytes::new(), recovery: None });
    for piece in [whole, quarter()] {
        let all = Arc::<Idempotency>::default();
        let Arrival::Begin(id, run) = arrive(&all) else { unreachable!("nobody has begun it") };
        let attached = Attachment::new(Arc::clone(&all), id, Arc::clone(&run), Instant::now()).unwrap();
        let (to_client, _items) = mpsc::channel(8);
        let reader: BoxFuture<_> = match &piece {
            Piece::Whole(_) => Box::pin(async { attached.whole().await.map(drop) }),
            Piece::Part(_) => Box::pin(attached.feed(to_client)),
        };
        let reader = Arc::new(Prompt(Mutex::new(Some(reader))));
        Arc::clone(&reader).wake();
        run.push(piece.clone()).await;
        all.end(id, &run, Ok(()));
        assert!(reader.0.lock().unwrap().is_none(), "it has read on to the end");
        assert!(matches!(arrive(&all), Arrival::Attach(same, _) if same == id), "it is forgotten");
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_taken_everything_sleeps_while_the_run_waits_for_a_slower_one() {
    let (run, [mut fast, mut slow]) = attached();
    let writer = tokio::spawn({
        let run = Arc::clone(&run);
        async move {
            for _ in 0..8 {
                run.push(quarter()).await;
            }
            run.end(Ok(()));
        }
    });
    // What it takes to be too much for the slower one.
    for _ in 0..4 {
        fast.next().await.unwrap().unwrap();
    }
    let changes = run.changed.subscribe();
    assert!(fast.take().is_none());
    assert!(!changes.has_changed().unwrap(), "it is woken by itself");
    // The clock moves only when everybody sleeps.
    let started = Instant::now();
    assert!(timeout(Duration::from_secs(60), fast.next()).await.is_err());
    assert_eq!(started.elapsed(), Duration::from_secs(60));
    // And each place that the slower one makes is used.
    let (mut taken, mut slowly) = (4, 0);
    let fast = async {
        while fast.next().await.unwrap().is_some() {
            taken += 1;
        }
    };
    let slow = async {
        while slow.next().await.unwrap().is_some() {
            slowly += 1;
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::join!(fast, slow);
    assert_eq!((taken, slowly), (8, 8));
    writer.await.unwrap();
}
