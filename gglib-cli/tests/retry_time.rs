//! What time limits do, against figures from elsewhere: Google's book on site reliability engineering, chapters
//! "Handling Overload" and "Addressing Cascading Failures".
//!
//! The figures of those chapters, and where each is shown or why it is not:
//!
//! | figure | where |
//! |---|---|
//! | 3 attempts are 3 times the load; 4 attempts at 3 layers are 64 times, 3 at 5 layers 243 times | `retry_layers` |
//! | a retry ratio of 10 % is 1.1 times the load; 60 retries a minute for a process | `retry_layers` |
//! | only the layer above the one that refuses retries | `retry_layers` |
//! | the cascade of 10,100 requests a second where 10,000 can be done; amplification by bounded attempts | `retry_layers` |
//! | 5 % of the requests hang: 80.4 % are refused | here |
//! | of a deadline of 30 s, 23 s and then 19 s are left | here; the deadline does not travel: OpenAI's protocol has no field for it, and only the layer above the endpoint retries |
//! | a client throttles itself with p = (requests - 2 × accepted) / (requests + 1) | nowhere: that turns originals away at random, and our budget is about retries alone. A local client has one server and few requests, which its circuit breaker turns away with the time that is left |
//! | servers count the attempts that they see, and say not to retry when most are retries | the proxy's budget per model: `gglib-proxy/src/budgets.rs` |

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use gglib_core::admission::{Admission, Command, Event, LeaseId, Profile, Settings, Ticket};
use gglib_core::model::ModelName;
use gglib_core::moment::Moment;
use gglib_core::retry::{HintRule, Jitter, RetryDecision, RetryPolicy, decide};
use rand::rngs::Xoshiro256PlusPlus;
use rand::{RngExt, SeedableRng};

const SECOND: Duration = Duration::from_secs(1);

/// Requests every 10 ms for `seconds`; one in twenty hangs until `deadline`, the others take 100 ms. 100 can be worked
/// on at once: a tenth of the book's server and of its load. Answers with the share that the endpoint's own queue
/// took in, once the first requests to hang had reached the book's deadline of 100 s.
fn taken_in(deadline: Duration, seconds: u64) -> f64 {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    let bounds = Settings { stall: Duration::MAX, max_wait: Duration::MAX, queue: 1, ..Settings::default() };
    let model = ModelName::new("model");
    let profile = Profile { parallel: 100, ..Profile::default() };
    let mut server = Admission::new(bounds, [(model.clone(), profile)].into());
    let mut ending: BinaryHeap<Reverse<(Moment, LeaseId)>> = BinaryHeap::new();
    let mut commands = Vec::new();
    let (mut taken, mut all) = (0_u32, 0_u32);
    for number in 0..seconds * 100 {
        let now = Moment::ORIGIN.saturating_add(Duration::from_millis(10 * number));
        let mut events = Vec::new();
        while let Some(&Reverse((at, lease))) = ending.peek()
            && at <= now
        {
            ending.pop();
            events.push(Event::Release { lease });
        }
        events.push(Event::Arrive { ticket: Ticket(number + 1), model: model.clone() });
        let counts = number >= 100 * 100;
        all += u32::from(counts);
        let mut refused = false;
        for event in events {
            server.handle(event, now, &mut commands);
            while let Some(command) = commands.pop() {
                match command {
                    Command::Launch { generation, .. } => {
                        server.handle(Event::Loaded { generation, footprint: None }, now, &mut commands);
                    }
                    Command::Grant { lease } => {
                        let hangs = random.random::<f64>() < 0.05;
                        let length = if hangs { deadline } else { Duration::from_millis(100) };
                        ending.push(Reverse((now.saturating_add(length), lease)));
                    }
                    Command::Refuse { .. } => refused = true,
                    Command::Stop { .. } => unreachable!("there is one model"),
                }
            }
        }
        taken += u32::from(counts && !refused);
    }
    f64::from(taken) / f64::from(all)
}

#[test]
fn a_few_requests_that_hang_take_the_places_of_all() {
    // 95 % of 0.1 s and 5 % of 100 s are 5.095 s a request: 100 places do 19.6 of the 100 that come in a second.
    let share = taken_in(100 * SECOND, 2_000);
    assert!((share - 0.196).abs() < 0.01, "{share}");
    // With a deadline near the usual time, the hanging ones hold 5 places and the others 10.
    let share = taken_in(SECOND, 300);
    assert!((share - 1.0).abs() < 1e-9, "{share}");
}

#[test]
fn what_is_left_of_a_deadline_is_what_a_delay_may_take() {
    let policy = RetryPolicy {
        total_deadline: 30 * SECOND,
        jitter: Jitter::None,
        hint_rule: HintRule::Obey { max_hint: Duration::MAX },
        ..RetryPolicy::default()
    };
    // Begun with 30 s, of which 7 s are spent and then 4 s more.
    for (attempt, spent, left) in [(1, 0, 30), (2, 7, 23), (3, 11, 19)] {
        let decision = |hint| decide(&policy, attempt, Some(hint), spent * SECOND, 0.0);
        let longest = (left * SECOND).saturating_sub(Duration::from_nanos(1));
        assert_eq!(decision(longest), RetryDecision::Retry { after: longest });
        assert!(
            matches!(decision(left * SECOND), RetryDecision::GiveUp(_)),
            "{left} s are no longer before the end"
        );
    }
}
