//! What is refused without asking any engine, and what holds for every response.

use std::time::Duration;

use gglib_core::admission::Refusal;
use gglib_testkit::wire::{Answer, Piece, post};
use gglib_testkit::{Engines, Launch, Reply, Script, Scripted};

use crate::pipes::{MODEL, Piped};
use crate::ports::{Ports, Turn};
use crate::served::{BOUND, Served, shipped};

async fn served(limit: u64) -> (Scripted, Served) {
    let scripted = Script::default().place();
    let engines = Engines::fake().scripted("smollm2", &scripted).scripted("gemma", &scripted);
    let mut settings = shipped();
    settings.body_limit = limit;
    let served = Served::start(engines, settings).await;
    (scripted, served)
}

/// Every error is OpenAI's, whole, and carries the request's id.
fn check(answer: &Answer, status: u16, code: &str, what: &str) {
    assert_eq!((answer.head.status, &answer.end), (status, &Piece::End), "{what}: {answer:?}");
    assert_eq!(answer.head.header("content-type"), Some("application/json"), "{what}");
    assert!(
        answer.head.header("x-request-id").is_some_and(|id| id.starts_with("req_")),
        "{what}: {answer:?}"
    );
    let body = answer.json();
    let error = body["error"].as_object().unwrap_or_else(|| panic!("{what}: {body}"));
    assert_eq!(error["code"], code, "{what}: {body}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{what}: {body}");
    assert!(error["type"].is_string() && error.contains_key("param"), "{what}: {body}");
}

#[tokio::test]
async fn a_bad_request_is_told_what_is_wrong_and_reaches_no_engine() {
    let (scripted, served) = served(1 << 20).await;
    let table: [(&[u8], u16, &str, &str); 12] = [
        (b"", 400, "invalid_json", "empty"),
        (b"[]", 400, "invalid_json", "an array"),
        (b"{\n  \"model\": \"smollm2\",\n  \"messages\" []\n}", 400, "invalid_json", "line 3 column 14"),
        (
            b"{\"model\":\"smollm2\",\"messages\":[\"\xff\"]}",
            400,
            "invalid_json",
            "UTF-8 at line 1 column 33",
        ),
        (b"{\"model\":\"smollm2\",\"messages\":[\"\\ud83d\"]}", 400, "invalid_json", "surrogate"),
        (b"{\"model\":\"smollm2\"}", 400, "invalid_request", "`messages`"),
        (b"{\"messages\":[]}", 400, "invalid_request", "`model`"),
        (b"{\"model\":7,\"messages\":[]}", 400, "invalid_request", "`model` must be a string, not 7"),
        (b"{\"model\":\"smollm2\",\"messages\":[],\"stream\":\"yes\"}", 400, "invalid_request", "`stream`"),
        (b"{\"model\":\"smollm2\",\"messages\":[],\"n\":-1}", 400, "invalid_request", "`n`"),
        (
            b"{\"model\":\"smollm2\",\"messages\":[],\"stream_options\":1}",
            400,
            "invalid_request",
            "`stream_options`",
        ),
        (b"{\"model\":\"smolm\",\"messages\":[]}", 404, "model_not_found", "did you mean `smollm2`"),
    ];
    for (body, status, code, part) in table {
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gglib\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let answer = served.connect().await.ask([head.as_bytes(), body].concat()).await;
        check(&answer, status, code, part);
        let message = answer.error()["message"].as_str().unwrap().to_owned();
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(scripted.log().launches(), 0);
    let totals = &served.status().await["totals"];
    assert_eq!([&totals["requests"], &totals["failed"]], [12, 12]);
}

#[tokio::test]
async fn a_body_that_is_too_large_is_told_so_however_it_comes() {
    const LIMIT: usize = 100_000;
    let (scripted, served) = served(LIMIT as u64).await;
    // Far more than the buffers between hold, so that an endpoint that does not read breaks the connection.
    let padding = "x".repeat(20_000_000);
    let announced = post("/v1/chat/completions", &padding);
    check(&served.connect().await.ask(announced).await, 413, "body_too_large", "announced");

    let chunked = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: gglib\r\ntransfer-encoding: chunked\r\n\r\n{:x}\r\n{padding}\r\n0\r\n\r\n",
        padding.len()
    );
    check(&served.connect().await.ask(chunked).await, 413, "body_too_large", "counted");

    let asking = "POST /v1/chat/completions HTTP/1.1\r\nhost: gglib\r\ncontent-length: 20000000\r\nexpect: 100-continue\r\n\r\n";
    let answer =
        tokio::time::timeout(Duration::from_secs(20), async { served.connect().await.ask(asking).await });
    check(&answer.await.expect("no byte of the body is needed"), 413, "body_too_large", "asked beforehand");

    let frame = r#"{"model":"smollm2","messages":[],"user":""}"#;
    for (excess, status) in [(0, 200), (1, 413)] {
        let filling = "x".repeat(LIMIT - frame.len() + excess);
        let body = frame.replace(r#""user":"""#, &format!(r#""user":"{filling}""#));
        assert_eq!(served.chat(&body).await.head.status, status, "{excess}");
    }
    assert_eq!(scripted.log().requests(), 1);
}

#[tokio::test]
async fn routes_and_methods() {
    let (scripted, served) = served(1 << 20).await;
    let ask = async |line: &str| {
        let request = format!("{line} HTTP/1.1\r\nhost: gglib\r\ncontent-length: 0\r\n\r\n");
        served.connect().await.ask(request).await
    };
    check(&ask("GET /v1/nothing").await, 404, "route_not_found", "route");
    check(&ask("POST /").await, 404, "route_not_found", "root");
    for line in
        ["GET /v1/chat/completions", "DELETE /v1/models", "OPTIONS /v1/chat/completions", "POST /status"]
    {
        let answer = ask(line).await;
        check(&answer, 405, "method_not_allowed", line);
        assert!(answer.head.header("allow").is_some(), "{line}: {answer:?}");
    }
    for path in ["/livez", "/healthz", "/health", "/readyz", "/status", "/v1/models", "/models"] {
        let answer = ask(&format!("GET {path}")).await;
        assert_eq!(answer.head.status, 200, "{path}");
        let head = {
            let mut client = served.connect().await;
            client.send(format!("HEAD {path} HTTP/1.1\r\nhost: gglib\r\n\r\n")).await;
            client.head().await.unwrap()
        };
        assert_eq!(head.status, 200, "{path}");
        assert!(head.header("x-request-id").is_some(), "{path}");
    }
    let models = ask("GET /v1/models").await.json();
    let ids: Vec<_> = models["data"].as_array().unwrap().iter().map(|model| model["id"].clone()).collect();
    assert_eq!((models["object"].as_str(), ids), (Some("list"), vec!["gemma".into(), "smollm2".into()]));
    // None of this has loaded a model, or counts as a completion.
    assert_eq!(scripted.log().launches(), 0);
    assert_eq!(served.status().await["totals"]["requests"], 0);
}

#[tokio::test]
async fn a_request_keeps_its_id_if_it_is_fit_for_a_log() {
    let (_scripted, served) = served(1 << 20).await;
    let id = async |line: &str, id: &str| {
        let request =
            format!("{line} HTTP/1.1\r\nhost: gglib\r\nx-request-id: {id}\r\ncontent-length: 0\r\n\r\n");
        let head = served.connect().await.ask(request).await.head;
        head.header("x-request-id").unwrap().to_owned()
    };
    for line in ["GET /livez", "GET /nothing", "PUT /livez", "POST /v1/chat/completions"] {
        assert_eq!(id(line, "abc-1").await, "abc-1", "{line}");
        for unfit in ["", "a b", &"x".repeat(129)] {
            let ours = id(line, unfit).await;
            assert!(ours.starts_with("req_") && ours.len() == 20, "{line} {unfit:?}: {ours}");
        }
    }
}

#[tokio::test]
async fn one_more_than_the_queue_holds_is_refused_at_once_with_a_time() {
    let slow = Reply { pace: Duration::from_millis(500), ..Reply::numbered(10) };
    let replies = vec![slow, Reply::numbered(10)];
    let scripted = Script::always(Launch { replies, ..Launch::default() }).place();
    let mut engines = Engines::fake().scripted("a", &scripted);
    engines.admission.queue = 10;
    let served = Served::start(engines, shipped()).await;
    let body = r#"{"model":"a","messages":[],"stream":true}"#;
    let first = served.chat(body);
    let others = async {
        scripted.until("the first to be served", BOUND, |log| log.requests() == 1).await;
        futures_util::future::join_all((0..10).map(|_| served.chat(body))).await
    };
    let refused = async {
        let full = |status: &serde_json::Value| status["queue"][0]["waiting"] == 10;
        served.until("a full queue", full).await;
        served.chat(body).await
    };
    let (first, others, refused) = tokio::join!(first, others, refused);
    for answer in others.iter().chain([&first]) {
        assert_eq!(answer.content().split(' ').count(), 11, "{answer:?}");
    }
    check(&refused, 429, "queue_full", "one more");
    let after: u64 = refused.head.header("retry-after").unwrap().parse().unwrap();
    let millis: u64 = refused.head.header("retry-after-ms").unwrap().parse().unwrap();
    assert!((1..=60).contains(&after) && millis.div_ceil(1000) == after, "{after} {millis}");
    assert_eq!(refused.error()["metadata"]["retry_after_ms"], millis);
    assert_eq!(refused.error()["type"], "rate_limit_error");
}

#[tokio::test(start_paused = true)]
async fn two_requests_on_one_connection_are_answered_one_after_the_other() {
    let refused = || Turn::Refused(Duration::from_secs(1), Refusal::Draining);
    let endpoint = Piped::start(Ports::default().with_turns([refused(), refused()]), shipped());
    let body = format!(r#"{{"model":"{MODEL}","messages":[]}}"#);
    let mut client = endpoint.connect();
    client.send(post("/v1/chat/completions", &body) + &post("/chat/completions", &body)).await;
    for number in 0..2 {
        check(&client.answer().await, 503, "draining", &number.to_string());
    }
}

#[tokio::test]
async fn fifty_clients_of_a_cold_model_cost_one_launch() {
    let scripted = Script::default().place();
    let served = Served::start(Engines::fake().scripted("a", &scripted), shipped()).await;
    let bodies = [r#"{"messages":[],"stream":true}"#, r#"{"messages":[]}"#];
    let answers = futures_util::future::join_all((0..50).map(|number| served.chat(bodies[number % 2])));
    for answer in tokio::time::timeout(BOUND, answers).await.unwrap() {
        assert_eq!((answer.content().as_str(), answer.end), ("Smallassy", Piece::End));
    }
    assert_eq!((scripted.log().launches(), scripted.log().requests()), (1, 50));
}

/// Two clients with different wishes do not make the engine come and go: what it is started with is the configuration's.
#[tokio::test]
async fn what_a_request_asks_for_never_changes_a_launch() {
    let (scripted, served) = served(1 << 20).await;
    for context in [1024, 65_536, 1024] {
        let body = format!(
            r#"{{"model":"smollm2","messages":[],"num_ctx":{context},"options":{{"num_ctx":{context}}}}}"#
        );
        assert_eq!(served.chat(&body).await.head.status, 200);
    }
    assert_eq!((scripted.log().launches(), scripted.log().requests()), (1, 3));
    let status = served.status().await;
    assert_eq!((status["totals"]["loads"].as_u64(), status["totals"]["swaps"].as_u64()), (Some(1), Some(0)));
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_framed_wrongly_is_an_error_and_one_that_breaks_off_is_a_client_that_left() {
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: gglib\r\ntransfer-encoding: chunked\r\n\r\n";
    let endpoint = Piped::start(Ports::default(), shipped());
    let answer = endpoint.connect().ask(format!("{head}zz\r\n")).await;
    check(&answer, 400, "invalid_request", "no length");
    let mut client = endpoint.connect();
    client.send(format!("{head}5\r\n{{")).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    drop(client);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let totals = endpoint.totals().await;
    assert_eq!(["requests", "failed", "abandoned"].map(|name| totals[name].as_u64().unwrap()), [2, 1, 1]);
}
