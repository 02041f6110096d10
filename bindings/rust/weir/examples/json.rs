//! Answers that a program can read: whatever the model would say, the answer is JSON of this schema.
//!
//!   cargo run --example json MODEL.gguf [QUESTION]
//!
//! A constraint is compiled once and can serve any number of sessions. Before each token is drawn it leaves only those
//! that the schema allows next, so nothing has to be repaired or asked again. What the model thinks stays free.
use std::io::Write;
use std::process::ExitCode;
use weir::{ConstraintKind, GenerateOptions, Message, Model, ModelOptions, PromptOptions, Runtime, RuntimeOptions};
use weir::{Segment, SessionOptions, Stop};

const SCHEMA: &str = r#"{"type": "object",
 "properties": {
   "answer": {"type": "string", "maxLength": 80},
   "kind": {"enum": ["number", "name", "other"]},
   "confidence": {"type": "integer", "minimum": 0, "maximum": 100}},
 "required": ["answer", "kind", "confidence"],
 "additionalProperties": false}"#;

fn run(path: &str, question: &str) -> weir::Result<Stop> {
    let runtime = Runtime::new(&RuntimeOptions::default())?;
    let model = Model::open(&runtime, path, &ModelOptions::default())?;
    let mut session = model.session(&SessionOptions::default())?;
    // A schema with a keyword that is not supported, or one that contradicts itself, fails here and says where.
    let constraint = model.constraint(ConstraintKind::JSON_SCHEMA, SCHEMA)?;
    session.set_constraint(Some(&constraint), 0)?;

    session.prompt(&[Message::new("user", question)], &PromptOptions::default())?;
    let mut stop = Stop::NONE;
    for event in session.begin(&GenerateOptions::default().max_tokens(2048))? {
        let event = event?;
        if event.segment == Segment::ANSWER {
            print!("{}", event.text());
            let _ = std::io::stdout().flush();
        }
        stop = event.stop;
    }
    println!();
    Ok(stop)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(path) = arguments.get(1) else {
        eprintln!("usage: json MODEL.gguf [QUESTION]");
        return ExitCode::from(2);
    };
    let question = arguments.get(2).map_or("What is the capital of France? Answer in JSON.", String::as_str);
    match run(path, question) {
        // Complete, unless the model thought for too long or the context ended.
        Ok(Stop::EOS | Stop::CONSTRAINT) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
