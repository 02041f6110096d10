//! Tests of the safe layer with the model that `WEIR_MODEL` names, the sample model of Weir's sources.
mod answers;
mod callbacks;
mod conversation;
mod lifetimes;
mod models;
mod readme;

use std::sync::OnceLock;
use weir::*;

/// A problem of some hundred tokens of thought, and one with a short answer.
const LONG: &str = "Start: x0 = 7, x1 = 5. Rule: x[n] = x[n-2] + x[n-1]. Work modulo 100. Find x12.";
const SHORT: &str = "Who are you?";

fn path() -> String {
    std::env::var("WEIR_MODEL").expect("WEIR_MODEL names the sample model")
}

fn open(options: &RuntimeOptions) -> Model {
    let runtime = Runtime::new(options).unwrap();
    Model::open(&runtime, path(), &ModelOptions::default()).unwrap()
}

/// One model for all tests that need no own.
fn model() -> &'static Model {
    static MODEL: OnceLock<Model> = OnceLock::new();
    MODEL.get_or_init(|| open(&RuntimeOptions::default().n_threads(1)))
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new(&RuntimeOptions::default().n_threads(1)).unwrap())
}

fn session() -> Session {
    model().session(&SessionOptions::default().context_tokens(1024)).unwrap()
}

/// A session that was asked.
fn asked(question: &str) -> Session {
    let mut session = session();
    session.prompt(&[Message::new("user", question)], &PromptOptions::default()).unwrap();
    session
}

/// All events of an answer.
fn answer(session: &mut Session, options: &GenerateOptions) -> Vec<Event> {
    session.begin(options).unwrap().collect::<Result<_>>().unwrap()
}

fn text(events: &[Event]) -> String {
    events.iter().map(|event| event.text()).collect()
}

fn tokens(events: &[Event]) -> Vec<Token> {
    events.iter().filter(|event| event.kind == EventKind::TOKEN).filter_map(|event| event.token).collect()
}
