//! Answers: events, sampling, stops, thoughts, constraints, masks.
use crate::*;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

#[test]
fn a_cancel_of_another_thread_loses_no_token_in_100_runs() {
    let cancel = Cancel::new().unwrap();
    let mut session = session();
    session.set_cancel(Some(&cancel)).unwrap();
    for run in 0..100 {
        cancel.clear();
        let messages = [Message::new("user", LONG)];
        session.prompt(&messages, &PromptOptions::default().exact(true)).unwrap();
        let n_prompt = session.tokens().unwrap().len();
        let (ready, start) = std::sync::mpsc::channel();
        let button = cancel.clone();
        let mut other = Some(std::thread::spawn(move || {
            start.recv().unwrap();
            std::thread::sleep(std::time::Duration::from_micros(37 * (run % 20)));
            button.set();
        }));
        let mut shown = Vec::new();
        let mut stop = Stop::NONE;
        for event in session.begin(&GenerateOptions::default().ignore_eos(true).max_tokens(800)).unwrap() {
            let event = event.unwrap();
            stop = event.stop;
            if event.kind == EventKind::TOKEN {
                shown.push(event.token.unwrap());
                match shown.len() {
                    3 => ready.send(()).unwrap(),
                    // The other thread may be slow, but the answer does not end without it.
                    700 => other.take().unwrap().join().unwrap(),
                    _ => {}
                }
            }
        }
        assert_eq!(stop, Stop::CANCELLED, "run {run}");
        assert_eq!(session.tokens().unwrap()[n_prompt..], shown, "run {run}");
        if let Some(other) = other {
            other.join().unwrap();
        }
    }
}

#[test]
fn events_have_text_and_an_end() {
    let mut session = asked(LONG);
    let events = answer(&mut session, &GenerateOptions::default());
    let end = events.last().unwrap();
    assert_eq!((end.kind, end.stop, end.stop_index), (EventKind::END, Stop::EOS, None));
    assert_eq!(end.token, Some(model().special_tokens().unwrap().eos));
    assert_eq!(end.index as usize, tokens(&events).len());
    let thought: String =
        events.iter().filter(|event| event.segment == Segment::THOUGHT).map(|event| event.text()).collect();
    assert!(thought.contains("x2 = x0 + x1"), "{thought}");
    let (message, is_malformed) = session.answer().unwrap();
    assert_eq!((message.role.as_str(), message.content.trim(), is_malformed), ("assistant", "x12 = 43.", false));
    assert_eq!(message.thought.unwrap(), thought.trim());
    assert!(events.iter().all(|event| event.logprob.is_nan() && event.top.is_empty()));
    // The end was given.
    assert_eq!(session.next_event().unwrap_err().status, Status::STATE);
    let mut left = session.events();
    assert_eq!(left.next().unwrap().unwrap_err().status, Status::STATE);
    assert!(left.next().is_none());
}

#[test]
fn an_answer_can_be_left_and_gone_on_with() {
    let whole = tokens(&answer(&mut asked(SHORT), &GenerateOptions::default()));
    let mut session = asked(SHORT);
    let mut parts = Vec::new();
    parts.extend(session.begin(&GenerateOptions::default()).unwrap().take(4).map(|event| event.unwrap()));
    assert!(session.stats().unwrap().n_decode > 0);
    parts.extend(session.events().map(|event| event.unwrap()));
    assert_eq!(tokens(&parts), whole);
}

#[test]
fn generate_shows_the_same_tokens_and_breaks() {
    let whole = tokens(&answer(&mut asked(SHORT), &GenerateOptions::default()));
    let mut shown = Vec::new();
    let mut text = String::new();
    let mut session = asked(SHORT);
    let result = session.generate(&GenerateOptions::default().n_top(2), |event| {
        shown.extend(event.token());
        text.push_str(&event.text());
        assert!(event.logprob() <= 0.0 && event.top().len() == 2 && event.index() as usize + 1 == shown.len());
        ControlFlow::Continue(())
    });
    let result = result.unwrap();
    assert_eq!((Stop(result.stop), result.n_tokens as usize), (Stop::EOS, whole.len()));
    assert_eq!(shown, whole);
    assert!(text.contains("small model of Weir"), "{text}");
    let mut n = 0;
    let mut session = asked(SHORT);
    let n_prompt = session.tokens().unwrap().len();
    let result = session.generate(&GenerateOptions::default(), |_| {
        n += 1;
        if n < 5 {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        }
    });
    assert_eq!(Stop(result.unwrap().stop), Stop::CANCELLED);
    assert_eq!(session.tokens().unwrap()[n_prompt..], whole[..5]);
}

#[test]
fn stops_lengths_and_probabilities() {
    let mut session = asked(SHORT);
    let options = GenerateOptions::default().stop("no such text").stop("model").n_top(3).max_tokens(100);
    let events = answer(&mut session, &options);
    let end = events.last().unwrap();
    assert_eq!((end.stop, end.stop_index), (Stop::STRING, Some(1)));
    assert!(!text(&events).contains("model") && text(&events).ends_with("small "), "{}", text(&events));
    let first = events.iter().find(|event| event.kind == EventKind::TOKEN).unwrap();
    assert_eq!(first.top.len(), 3);
    assert_eq!((first.top[0].token, first.top[0].logprob), (first.token.unwrap(), first.logprob)); // greedy

    // Text that is held back long comes in one piece.
    let whole = text(&answer(&mut asked(SHORT), &GenerateOptions::default()));
    let held = answer(&mut asked(SHORT), &GenerateOptions::default().stop(format!("{}!", &whole[..60])));
    assert!(held.iter().any(|event| event.text().len() > 30));
    assert_eq!(text(&held), whole);
    let events = answer(&mut asked(SHORT), &GenerateOptions::default().max_tokens(4));
    assert_eq!((events.last().unwrap().stop, tokens(&events).len()), (Stop::LENGTH, 4));
    let error = asked(SHORT).begin(&GenerateOptions::default().stop("")).err().unwrap();
    assert_eq!(error.status, Status::INVALID_ARG);
    let error = asked(SHORT).begin(&GenerateOptions::default().stop(b"\xff")).err().unwrap();
    assert_eq!(error.status, Status::INVALID_ARG);
}

#[test]
fn sampling_follows_its_seed_and_bias() {
    let draw = |options: &SamplingOptions| {
        let mut session = asked("Tell me something.");
        session.set_sampling(options).unwrap();
        tokens(&answer(&mut session, &GenerateOptions::default().max_tokens(24).ignore_eos(true)))
    };
    let hot = SamplingOptions::default().temperature(3.0).top_k(200);
    let draws: Vec<_> = (0..4).map(|seed| draw(&hot.clone().seed(seed))).collect();
    assert_eq!(draws[1], draw(&hot.clone().seed(1)));
    assert!(draws.iter().any(|other| *other != draws[0]));
    let greedy = draw(&SamplingOptions::default());
    let other = draw(&SamplingOptions::default().bias(greedy[0], -100.0));
    assert!(!other.contains(&greedy[0]));
    assert!(session().set_sampling(&SamplingOptions::default().temperature(-1.0)).is_err());
}

#[test]
fn a_loop_of_samples_and_steps_is_an_answer_too() {
    let whole = tokens(&answer(&mut asked(SHORT), &GenerateOptions::default()));
    let mut session = asked(SHORT);
    for &expected in &whole {
        let logits = session.logits().unwrap();
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap();
        assert_eq!(best as Token, expected);
        assert_eq!(session.sample().unwrap(), expected);
        session.step(expected).unwrap();
    }
    assert_eq!(session.stats().unwrap().n_decode as usize, whole.len());
}

#[test]
fn thoughts_are_ended_early() {
    let mut session = asked(LONG);
    let options = GenerateOptions::default().thinking_budget(10).thinking_close("Enough.");
    let events = answer(&mut session, &options);
    assert!(session.answer().unwrap().0.thought.unwrap().ends_with("Enough."), "{}", text(&events));
    let mut session = asked(LONG);
    let mut events = session.begin(&GenerateOptions::default().thinking_close("Stop.")).unwrap();
    let _ = events.by_ref().take(8).last();
    events.session().finish_thinking();
    assert!(events.all(|event| event.is_ok()));
    assert!(session.answer().unwrap().0.thought.unwrap().ends_with("Stop."));
}

#[test]
fn answers_obey_a_schema() {
    let schema = r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12},
        "n": {"type": "integer", "minimum": 0, "maximum": 99}}, "required": ["name", "n"],
        "additionalProperties": false}"#;
    let constraint = model().constraint(ConstraintKind::JSON_SCHEMA, schema).unwrap();
    let mut session = session();
    session.set_constraint(Some(&constraint), 0).unwrap();
    drop(constraint); // the session keeps what it needs
    session.prompt(&[Message::new("user", "Who are you? Answer in JSON.")], &PromptOptions::default()).unwrap();
    let events = answer(&mut session, &GenerateOptions::default().max_tokens(800));
    assert!(matches!(events.last().unwrap().stop, Stop::EOS | Stop::CONSTRAINT));
    let said: String =
        events.iter().filter(|event| event.segment == Segment::ANSWER).map(|event| event.text()).collect();
    // The library reads it again, as a template's variables.
    let template = "{{ x | length }} {{ x.name | length <= 12 }} {{ 0 <= x.n <= 99 }}";
    let read = runtime().render_template(template, format!("{{\"x\": {said}}}"), 0).unwrap();
    assert_eq!(read, "2 True True", "{said}");
    session.set_constraint(None, 0).unwrap();
    session.prompt(&[Message::new("user", SHORT)], &PromptOptions::default()).unwrap();
    assert!(text(&answer(&mut session, &GenerateOptions::default())).contains("small model"));
}

#[test]
fn grammars_json_and_tools_are_constraints() {
    let grammar = model().constraint(ConstraintKind::GBNF, "root ::= \"yes\" | \"no\"").unwrap();
    let mut session = session();
    session.set_constraint(Some(&grammar), 0).unwrap();
    session.prompt(&[Message::new("user", "Is it?")], &PromptOptions::default()).unwrap();
    let said = text(&answer(&mut session, &GenerateOptions::default()));
    assert!(said == "yes" || said == "no", "{said}");
    assert!(model().constraint(ConstraintKind::JSON, "").is_ok());
    let tools = r#"[{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]"#;
    assert!(model().constraint(ConstraintKind::TOOLS, tools).is_ok());
    assert!(model().constraint(ConstraintKind::GBNF, "root = 1").is_err());
    assert!(model().constraint(ConstraintKind(99), "").is_err());
    let error = session.begin(&GenerateOptions::default().stop_at_call(true)).err().unwrap();
    assert!(error.status == Status::UNSUPPORTED, "{error}"); // the sample model knows no calls
}

#[test]
fn a_mask_forbids_tokens() {
    let usual = tokens(&answer(&mut asked(SHORT), &GenerateOptions::default()));
    let forbidden = usual[0];
    let n_calls = Arc::new(AtomicUsize::new(0));
    let calls = n_calls.clone();
    let mut session = asked(SHORT);
    session
        .set_token_mask(move |mask| {
            calls.fetch_add(1, Ordering::Relaxed);
            assert!(mask.tokens().len() < 8);
            mask.words()[forbidden as usize / 32] &= !(1 << (forbidden % 32));
            ControlFlow::Continue(())
        })
        .unwrap();
    let other = tokens(&answer(&mut session, &GenerateOptions::default().max_tokens(8)));
    assert!(!other.contains(&forbidden) && !other.is_empty());
    let n = n_calls.load(Ordering::Relaxed);
    assert!(n >= other.len());
    // A fork has it, too, and keeps it when the first session is gone.
    session.prompt(&[Message::new("user", SHORT)], &PromptOptions::default()).unwrap();
    let mut fork = session.fork().unwrap();
    drop(session);
    assert_eq!(tokens(&answer(&mut fork, &GenerateOptions::default().max_tokens(8))), other);
    assert!(n_calls.load(Ordering::Relaxed) > n);
    fork.clear_token_mask().unwrap();
    assert_eq!(Arc::strong_count(&n_calls), 1);
    fork.prompt(&[Message::new("user", SHORT)], &PromptOptions::default()).unwrap();
    assert_eq!(tokens(&answer(&mut fork, &GenerateOptions::default())), usual);
}

#[test]
fn many_answers_at_once_are_those_of_each_alone() {
    let questions = [SHORT, LONG, "Tell me something."];
    let alone: Vec<_> = questions
        .iter()
        .map(|question| tokens(&answer(&mut asked(question), &GenerateOptions::default().max_tokens(40))))
        .collect();
    let mut sessions: Vec<_> = questions.iter().map(|question| asked(question)).collect();
    for session in &mut sessions {
        session.begin(&GenerateOptions::default().max_tokens(40)).unwrap();
    }
    let mut together = vec![Vec::new(); 3];
    loop {
        let mut list: Vec<_> = sessions.iter_mut().collect();
        let (events, n_running) = next_many(&mut list).unwrap();
        for (shown, event) in together.iter_mut().zip(&events) {
            shown.extend(tokens(std::slice::from_ref(event)));
        }
        if n_running == 0 {
            break;
        }
    }
    assert_eq!(together, alone);
    let (mut a, mut b) = (asked(SHORT), asked(LONG));
    let next = [a.sample().unwrap(), b.sample().unwrap()];
    step_many(&mut [&mut a, &mut b], &next).unwrap();
    assert_eq!((a.tokens().unwrap().last(), b.tokens().unwrap().last()), (Some(&next[0]), Some(&next[1])));
    assert_eq!(step_many(&mut [&mut a], &next).unwrap_err().text, "2 tokens for 1 sessions");
    assert!(next_many(&mut []).is_err());
}
