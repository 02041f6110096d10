//! The shortest whole program: open a model, ask one question, print the answer.
//!
//!   cargo run --example hello MODEL.gguf [QUESTION]
use std::io::Write;
use std::ops::ControlFlow;
use std::process::ExitCode;
use weir::{GenerateOptions, Message, Model, ModelOptions, PromptOptions, Runtime, RuntimeOptions, SessionOptions};

fn run(path: &str, question: &str) -> weir::Result<()> {
    // Defaults everywhere: all cores, greedy decoding, the model's whole context.
    let runtime = Runtime::new(&RuntimeOptions::default())?;
    let model = Model::open(&runtime, path, &ModelOptions::default())?;
    let mut session = model.session(&SessionOptions::default())?;

    // The session then holds the question as the model was trained to see it. Whatever it says, it stays the text of
    // one message.
    session.prompt(&[Message::new("user", question)], &PromptOptions::default())?;

    // special_text shows marks such as <think> too.
    let options = GenerateOptions::default().max_tokens(512).special_text(true);
    session.generate(&options, |event| {
        print!("{}", event.text());
        let _ = std::io::stdout().flush();
        ControlFlow::Continue(()) // Break would stop the answer
    })?;
    println!();
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(path) = arguments.get(1) else {
        eprintln!("usage: hello MODEL.gguf [QUESTION]");
        return ExitCode::from(2);
    };
    match run(path, arguments.get(2).map_or("Who are you?", String::as_str)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
