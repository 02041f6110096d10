//! What lives how long, and what goes to which thread.
use crate::*;

fn is_send<T: Send>() {}
fn is_shared<T: Clone + Send + Sync>() {}

#[test]
fn types_go_to_the_threads_that_they_may_go_to() {
    is_shared::<Runtime>();
    is_shared::<Model>();
    is_shared::<Constraint>();
    is_shared::<Cancel>();
    is_shared::<SessionOptions>();
    is_shared::<PromptOptions>();
    is_shared::<Message>();
    is_send::<Session>();
    is_send::<Detokenizer>();
    is_send::<Event>();
    is_shared::<Error>();
}

#[test]
fn what_was_dropped_lives_as_long_as_it_is_used() {
    let model = open(&RuntimeOptions::default().n_threads(1)); // its runtime is dropped already
    let mut session = model.session(&SessionOptions::default().context_tokens(512)).unwrap();
    let constraint = model.constraint(ConstraintKind::GBNF, "root ::= \"a\"").unwrap();
    let mut detokenizer = model.detokenizer(DetokenizeFlags::default()).unwrap();
    let cancel = Cancel::new().unwrap();
    session.set_cancel(Some(&cancel)).unwrap();
    drop(model);
    drop(cancel);
    session.prompt(&[Message::new("user", SHORT)], &PromptOptions::default()).unwrap();
    let events = answer(&mut session, &GenerateOptions::default());
    assert!(text(&events).contains("small model"));
    let shown: String = tokens(&events).iter().map(|&token| detokenizer.push(token).unwrap().to_string()).collect();
    assert!(shown.contains("small model"));
    session.set_constraint(Some(&constraint), 0).unwrap();
    drop(session);
    drop(detokenizer);
    drop(constraint);
}

#[test]
fn a_cancel_outlives_its_sessions_and_stays_set() {
    let cancel = Cancel::new().unwrap();
    let other = cancel.clone();
    let mut session = asked(SHORT);
    session.set_cancel(Some(&cancel)).unwrap();
    other.set();
    for _ in 0..2 {
        let last = answer(&mut session, &GenerateOptions::default()).pop().unwrap();
        assert_eq!(last.stop, Stop::CANCELLED);
    }
    assert_eq!(session.step(1).unwrap_err().status, Status::CANCELLED);
    cancel.clear();
    assert!(session.step(1).is_ok());
    cancel.set();
    session.set_cancel(None).unwrap();
    assert!(session.step(1).is_ok());
    drop(session);
    other.set();
    other.clear();
}

#[test]
fn two_threads_with_a_session_each_answer_as_one() {
    let options = GenerateOptions::default().max_tokens(60);
    let expected = [SHORT, LONG].map(|question| tokens(&answer(&mut asked(question), &options)));
    let threads = [SHORT, LONG].map(|question| {
        let (mut session, options) = (asked(question), options.clone());
        std::thread::spawn(move || tokens(&answer(&mut session, &options)))
    });
    assert_eq!(threads.map(|thread| thread.join().unwrap()), expected);
}

#[test]
fn options_outlive_what_they_were_made_from_and_are_cloned() {
    let options = {
        let name = String::from("raas");
        SessionOptions::default().policy(name).policy_option("min_decode_pages", &String::from("4")).budget_tokens(512)
    };
    let copy = options.clone();
    let plan = model().plan(&options).unwrap();
    drop(options);
    assert_eq!(model().plan(&copy).unwrap().total_bytes, plan.total_bytes);
    let there = std::thread::spawn(move || model().plan(&copy).unwrap().total_bytes).join().unwrap();
    assert_eq!(there, plan.total_bytes);
}
