//! What the endpoint tells about conversations that outlive their engine.

use gglib_testkit::{Engines, Fault, Launch, Reply, Script, Scripted, SlotReply, SlotScript};
use serde_json::json;

use crate::served::{Served, shipped};

async fn start(a: &Scripted, b: &Scripted) -> Served {
    let engines = Engines::fake()
        .scripted("a", a)
        .scripted("b", b)
        .saving_slots(&a.model().with_file_name("slots"), 1 << 20);
    Served::start(engines, shipped()).await
}

async fn chat(served: &Served, model: &str, contents: &[&str], stream: bool) -> u16 {
    let messages: Vec<_> = contents.iter().map(|text| json!({ "role": "user", "content": text })).collect();
    let body = json!({ "model": model, "messages": messages, "stream": stream });
    served.chat(&body.to_string()).await.head.status
}

fn scripted(restores: Vec<SlotReply>) -> Scripted {
    let slots = SlotScript { restores, ..SlotScript::default() };
    Script::always(Launch { slots, ..Launch::default() }).place()
}

#[tokio::test]
async fn a_restore_is_proved_by_the_next_answer_streamed_or_plain() {
    for stream in [true, false] {
        let (a, b) = (scripted(Vec::new()), scripted(Vec::new()));
        let served = start(&a, &b).await;
        assert_eq!(served.status().await["slots"]["saved"], 0);
        chat(&served, "a", &["one two three"], stream).await;
        chat(&served, "b", &["else"], stream).await;
        chat(&served, "a", &["one two three", "four"], stream).await;
        let slots = &served.status().await["slots"];
        assert_eq!((&slots["verified"], &slots["switched_off"]), (&json!(1), &json!([])), "{slots}");
    }
}

#[tokio::test]
async fn a_restore_that_lies_is_told_of_and_the_answer_is_whole() {
    let (a, b) = (scripted(vec![SlotReply::Lie]), scripted(Vec::new()));
    let served = start(&a, &b).await;
    for (model, contents) in
        [("a", &["one two three"][..]), ("b", &["else"]), ("a", &["one two three", "four"])]
    {
        assert_eq!(chat(&served, model, contents, true).await, 200);
    }
    let slots = &served.status().await["slots"];
    assert_eq!((&slots["verified"], &slots["switched_off"]), (&json!(0), &json!(["a"])), "{slots}");
}

/// Its slot holds another prompt than that of the last whole answer, which must not be held against it.
#[tokio::test]
async fn an_answer_that_failed_leaves_it_unknown_what_a_slot_holds() {
    let failing = Reply { fault: Some(Fault::EndAfter(1)), ..Reply::default() };
    let launch = Launch { replies: vec![Reply::default(), failing], ..Launch::default() };
    let a = Script { launches: vec![launch, Launch::default()] }.place();
    let b = scripted(Vec::new());
    let served = start(&a, &b).await;
    chat(&served, "a", &["one two three"], true).await;
    chat(&served, "a", &["something else"], true).await;
    chat(&served, "b", &["else"], true).await;
    chat(&served, "a", &["one two three", "four"], true).await;
    let slots = &served.status().await["slots"];
    assert_eq!(
        (&slots["restored"], &slots["verified"], &slots["switched_off"]),
        (&json!(1), &json!(0), &json!([]))
    );
}
