//! What gglib takes for granted about an engine. The same list runs against the fake and the real one, so that a test
//! on the fake says something about the real thing.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use crate::served::{BOUND, Served, data, raw_request, until_end};

/// Checks the whole contract on an engine that has just been started, and ends it.
pub(crate) async fn check(mut engine: Served) {
    loading_is_503(&engine).await;
    props(&engine).await;
    models(&engine).await;
    plain(&engine).await;
    stream(&engine).await;
    stream_with_usage(&engine).await;
    progress(&engine).await;
    a_prefix_is_repeated(&engine).await;
    errors(&engine).await;
    connections(&engine).await;
    a_stream_left_is_cancelled(&engine).await;
    a_socket_file_in_the_way(&engine);
    sigterm_cuts_a_stream(&mut engine).await;
}

/// Checks what an engine that was started with the key `k` says to others.
pub(crate) async fn check_key(engine: Served) {
    engine.ready().await;
    let props_with =
        async |key| engine.client.get("http://engine/props").bearer_auth(key).send().await.unwrap();
    assert_eq!(props_with("k").await.status(), 200);
    for answer in [engine.get("/props").await, props_with("z").await] {
        assert_eq!(answer.status(), 401);
        let body = r#"{"error":{"message":"Invalid API Key","type":"authentication_error","code":401}}"#;
        assert_eq!(answer.text().await.unwrap(), body);
    }
    assert_eq!(engine.get("/v1/models").await.status(), 200);
}

async fn loading_is_503(engine: &Served) {
    let answers = engine.ready().await;
    assert_ne!(answers.len(), 0, "the load was over before it was looked at");
    for answer in answers {
        assert_eq!(answer.status(), 503);
        assert_eq!(answer.headers()["connection"], "close");
        assert_eq!(answer.headers().get("retry-after"), None);
        let body = r#"{"error":{"message":"Loading model","type":"unavailable_error","code":503}}"#;
        assert_eq!(answer.text().await.unwrap(), body);
    }
}

async fn props(engine: &Served) {
    let props: Value = json_of(engine.get("/props").await).await;
    assert_eq!(props["total_slots"], 1);
    assert_eq!(props["default_generation_settings"]["n_ctx"], 2048);
    assert_eq!(props["model_alias"], "smollm2");
    assert_eq!(props["is_sleeping"], false);
    assert_eq!(props["chat_template_caps"]["supports_tools"], false);
    assert!(props["build_info"].is_string());
}

async fn models(engine: &Served) {
    let models: Value = json_of(engine.get("/v1/models").await).await;
    assert_eq!(models["data"][0]["id"], "smollm2");
    assert_eq!(models["data"][0]["meta"]["n_ctx"], 2048);
}

const TIMINGS: &str = "{cache_n:number,prompt_n:number,prompt_ms:number,prompt_per_token_ms:number,\
    prompt_per_second:number,predicted_n:number,predicted_ms:number,predicted_per_token_ms:number,\
    predicted_per_second:number}";
const USAGE: &str = "{completion_tokens:number,prompt_tokens:number,total_tokens:number,\
    prompt_tokens_details:{cached_tokens:number}}";

fn ask(more: &Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "Say hi in three words." }],
        "temperature": 0, "seed": 1, "max_tokens": 12 });
    let object = body.as_object_mut().unwrap();
    object.extend(more.as_object().unwrap().clone());
    body
}

async fn plain(engine: &Served) {
    let answer: Value = json_of(engine.chat(&ask(&json!({}))).await).await;
    let shape_wanted = format!(
        "{{choices:[{{finish_reason:string,index:number,message:{{role:string,content:string}}}}],created:number,\
         model:string,system_fingerprint:string,object:string,usage:{USAGE},id:string,timings:{TIMINGS}}}"
    );
    assert_eq!(shape(&answer), shape_wanted);
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["model"], "smollm2");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["choices"][0]["message"]["content"], "Smallassy");
}

/// The shape of a chunk with this delta, finish reason and tail.
fn chunk(delta: &str, finish_reason: &str, tail: &str) -> String {
    format!(
        "{{choices:[{{finish_reason:{finish_reason},index:number,delta:{delta}}}],created:number,id:string,\
         model:string,system_fingerprint:string,object:string{tail}}}"
    )
}

async fn events(engine: &Served, more: &Value) -> Vec<Value> {
    let answer = engine.chat(&ask(more)).await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let body = answer.text().await.unwrap();
    let (done, chunks) = data(&body).split_last().map(|(done, chunks)| (*done, chunks.to_vec())).unwrap();
    assert_eq!(done, "[DONE]");
    chunks.into_iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
}

async fn stream(engine: &Served) {
    let chunks = events(engine, &json!({ "stream": true })).await;
    let shapes: Vec<_> = chunks.iter().map(shape).collect();
    let mut wanted = vec![chunk("{role:string,content:null}", "null", "")];
    wanted.extend(vec![chunk("{content:string}", "null", ""); 5]);
    wanted.push(chunk("{}", "string", &format!(",timings:{TIMINGS}")));
    assert_eq!(shapes, wanted);
    let content: String =
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(content, "Smallassy");
    assert!(chunks.iter().all(|chunk| chunk["id"] == chunks[0]["id"]));
}

async fn stream_with_usage(engine: &Served) {
    let chunks =
        events(engine, &json!({ "stream": true, "stream_options": { "include_usage": true } })).await;
    let [.., finish, usage] = chunks.as_slice() else { panic!("{chunks:?}") };
    assert_eq!(shape(finish), chunk("{}", "string", ""));
    let wanted = format!(
        "{{choices:[],created:number,id:string,model:string,system_fingerprint:string,object:string,\
         usage:{USAGE},timings:{TIMINGS}}}"
    );
    assert_eq!(shape(usage), wanted);
    assert_eq!(usage["usage"]["completion_tokens"], 6);
}

async fn progress(engine: &Served) {
    let chunks = events(engine, &json!({ "stream": true, "return_progress": true })).await;
    let with_progress: Vec<_> =
        chunks.iter().take_while(|chunk| chunk.get("prompt_progress").is_some()).collect();
    let tail = ",prompt_progress:{total:number,cache:number,processed:number,time_ms:number}";
    for told in &with_progress {
        assert_eq!(shape(told), chunk("{role:string,content:null}", "null", tail));
    }
    let mut processed =
        with_progress.iter().map(|chunk| chunk["prompt_progress"]["processed"].as_u64().unwrap());
    assert!(processed.clone().is_sorted());
    assert_eq!(processed.next_back(), with_progress[0]["prompt_progress"]["total"].as_u64());
    // After it everything is as without it, the role included.
    assert_eq!(shape(&chunks[with_progress.len()]), chunk("{role:string,content:null}", "null", ""));
}

/// A last message of the assistant comes back before anything new, with the first progress.
async fn a_prefix_is_repeated(engine: &Served) {
    let messages =
        json!([{ "role": "user", "content": "Hi" }, { "role": "assistant", "content": "Hello, my" }]);
    let more = json!({ "messages": messages, "stream": true, "return_progress": true });
    let chunks = events(engine, &more).await;
    let repeats = |chunk: &Value| chunk["choices"][0]["delta"]["content"] == "Hello, my";
    let repeated: Vec<_> = chunks.iter().filter(|chunk| repeats(chunk)).collect();
    assert_eq!(repeated.len(), 1, "{chunks:?}");
    let progress = &repeated[0]["prompt_progress"];
    assert!(progress["processed"].as_u64() < progress["total"].as_u64(), "{chunks:?}");
}

async fn errors(engine: &Served) {
    let chat = "/v1/chat/completions";
    let long =
        ask(&json!({ "stream": true, "messages": [{ "role": "user", "content": "word ".repeat(4000) }] }));
    let hot = ask(&json!({ "temperature": "hot" }));
    let coded = "{error:{code:number,message:string,type:string}}";
    let counted = "{error:{code:number,message:string,type:string,n_prompt_tokens:number,n_ctx:number}}";
    for (path, body, status, kind, wanted) in [
        (chat, "{\"messages\":".to_owned(), 500, "server_error", coded),
        (chat, "{}".to_owned(), 400, "invalid_request_error", coded),
        (chat, hot.to_string(), 400, "invalid_request_error", coded),
        (chat, long.to_string(), 400, "exceed_context_size_error", counted),
        ("/v1/embeddings", "{\"input\":\"x\"}".to_owned(), 501, "not_supported_error", coded),
        (
            "/nowhere",
            "{}".to_owned(),
            404,
            "not_found_error",
            "{error:{message:string,type:string,code:number}}",
        ),
    ] {
        let answer = engine.post(path, body).await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        assert_eq!(answer.headers()["connection"], "close");
        let error: Value = json_of(answer).await;
        assert_eq!((&error["error"]["code"], &error["error"]["type"]), (&json!(status), &json!(kind)));
        assert_eq!(shape(&error), wanted);
    }
}

/// Kept open between requests, closed by the engine when idle for 5 s.
async fn connections(engine: &Served) {
    let mut stream = engine.connect().await;
    let mut asked = Instant::now();
    for _ in 0..2 {
        asked = Instant::now();
        stream.write_all(b"GET /health HTTP/1.1\r\nHost: engine\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"{\"status\":\"ok\"}") {
            let read = timeout(BOUND, stream.read_buf(&mut answer)).await.expect("it answers").unwrap();
            assert!(read > 0, "cut off after {}", String::from_utf8_lossy(&answer));
        }
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.contains("Keep-Alive: timeout=5, max=100\r\n"), "{answer}");
    }
    // It has been idle since its last answer, which came after the question.
    assert_eq!(until_end(&mut stream).await, "");
    assert!(asked.elapsed().as_secs_f32() > 4.0, "{:?}", asked.elapsed());
}

/// With one slot, the next request is answered only if the first is over: long before it would be over by itself.
async fn a_stream_left_is_cancelled(engine: &Served) {
    const TOKENS: u32 = 1900;
    const MEASURED: u32 = 64;
    let long = json!({ "stream": true, "max_tokens": TOKENS, "ignore_eos": true });
    let mut answer = engine.chat(&ask(&long)).await;
    // Before what is counted: chunks that have piled up on a busy machine are read in no time.
    let began = Instant::now();
    answer.chunk().await.unwrap().unwrap();
    let mut read = 0;
    while read < MEASURED {
        let chunk = answer.chunk().await.unwrap().unwrap();
        read += u32::try_from(String::from_utf8_lossy(&chunk).matches("\"content\":").count()).unwrap();
    }
    // A share of what the rest would take on this machine, which may be as busy as it likes.
    let rest = began.elapsed() * (TOKENS - read) / read;
    drop(answer);
    let next = ask(&json!({}));
    let next = timeout(rest / 3, engine.chat(&next)).await;
    let answer = next.unwrap_or_else(|_| panic!("the stream goes on, for {rest:?}"));
    assert_eq!(answer.status(), 200);
}

fn a_socket_file_in_the_way(engine: &Served) {
    let program = std::fs::read_link(format!("/proc/{}/exe", engine.process.id())).unwrap();
    let command = Served::command(&program, "unused".as_ref(), &engine.socket, &[]);
    let mut second = gglib_testkit::Running::start(command);
    assert_eq!(second.until_end(BOUND).code(), Some(1));
    second.until_line(|line| line.contains("couldn't bind HTTP server socket, hostname:"), BOUND);
}

/// The stream stops at once and is cut at the next ping; the process then ends by itself.
async fn sigterm_cuts_a_stream(engine: &mut Served) {
    let long = ask(&json!({ "stream": true, "max_tokens": 1900, "ignore_eos": true }));
    let mut stream = engine.connect().await;
    stream.write_all(&raw_request(&long)).await.unwrap();
    let mut first = vec![0; 64 * 1024];
    while !String::from_utf8_lossy(&first).contains("{\"content\":\"") {
        let read = stream.read(&mut first).await.unwrap();
        assert!(read > 0);
    }
    engine.process.signal(rustix::process::Signal::TERM);
    let rest = until_end(&mut stream).await;
    assert!(
        !rest.contains("[DONE]") && !rest.contains("finish_reason\":\"") && !rest.ends_with("0\r\n\r\n"),
        "{rest}"
    );
    engine.process.until_end(BOUND);
}

async fn json_of(answer: reqwest::Response) -> Value {
    serde_json::from_str(&answer.text().await.unwrap()).unwrap()
}

/// Member names in their order, and types.
fn shape(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Array(items) => format!("[{}]", items.first().map(shape).unwrap_or_default()),
        Value::Object(members) => {
            let members: Vec<_> =
                members.iter().map(|(name, value)| format!("{name}:{}", shape(value))).collect();
            format!("{{{}}}", members.join(","))
        }
    }
}

/// Checks what an engine that was started with `--slot-save-path` does with its slots.
pub(crate) async fn check_slots(first: Served, second: Served) {
    let answer = async |engine: &Served, messages: Value| {
        let body = json!({ "messages": messages, "max_tokens": 4, "temperature": 0, "stream": true });
        let answer = engine.chat(&body).await.text().await.unwrap();
        let last = data(&answer).into_iter().rfind(|chunk| chunk.contains("timings")).unwrap();
        let timings = serde_json::from_str::<Value>(last).unwrap()["timings"].take();
        [&timings["cache_n"], &timings["prompt_n"]].map(|count| count.as_u64().unwrap())
    };
    let slot = async |engine: &Served, action: &str, file: &str| {
        let body = json!({ "filename": file }).to_string();
        let answer = engine.post(&format!("/slots/0?action={action}"), body).await.unwrap();
        (answer.status().as_u16(), json_of(answer).await)
    };
    let user = |text: &str| json!({ "role": "user", "content": text });
    let poem = "roses are red and violets are blue sugar is sweet and so are the birds that sing in the tree";
    first.ready().await;
    second.ready().await;
    assert_eq!(slot(&first, "save", "empty.kv").await.1["n_saved"], 0);
    assert_eq!(answer(&first, json!([user(poem)])).await[0], 0);
    let (status, saved) = slot(&first, "save", "a.kv").await;
    assert!(status == 200 && saved["n_saved"].as_u64() > Some(15), "{saved}");
    // A new process is restored, and has nothing else in its cache.
    let (status, missing) = slot(&second, "restore", "b.kv").await;
    assert_eq!((status, &missing["error"]["type"]), (400, &json!("invalid_request_error")));
    let (status, restored) = slot(&second, "restore", "a.kv").await;
    assert_eq!((status, &restored["n_restored"]), (200, &saved["n_saved"]));
    assert_eq!(restored["n_read"], saved["n_written"]);
    let [cached, read] =
        answer(&second, json!([user(poem), { "role": "assistant", "content": "Oh" }, user("More")])).await;
    assert!(cached > 15 && read < cached, "{cached} {read}");
}
