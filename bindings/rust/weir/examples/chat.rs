//! A conversation at the keyboard: all messages are kept here, and the session is made to hold them before each answer.
//!
//!   cargo run --example chat MODEL.gguf [SYSTEM]
//!
//! A line is a question. "/again" asks for another answer to the last one, "/undo" takes the last question and its
//! answer back, and the end of the input ends the program. Ctrl-C stops an answer, and what was said of it stays.
use std::io::{BufRead, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use weir::{Cancel, GenerateOptions, Message, Model, ModelOptions, PromptOptions, Runtime, RuntimeOptions};
use weir::{SamplingOptions, Session, SessionOptions, Stop};

static CANCEL: OnceLock<Cancel> = OnceLock::new();

extern "C" fn on_interrupt(_number: i32) {
    if let Some(cancel) = CANCEL.get() {
        cancel.set(); // allowed in a signal handler
    }
}

extern "C" {
    fn signal(number: i32, handler: extern "C" fn(i32)) -> usize;
}

/// Prints the answer and returns it as a message.
fn answer(session: &mut Session) -> weir::Result<Message> {
    // special_text: marks such as <think> belong to what was said
    let options = GenerateOptions::default().special_text(true).max_tokens(2048);
    let (mut text, mut stop) = (String::new(), Stop::NONE);
    for event in session.begin(&options)? {
        let event = event?;
        print!("{}", event.text());
        let _ = std::io::stdout().flush();
        text.push_str(event.text());
        stop = event.stop;
    }
    print!("{}", if stop == Stop::EOS { "\n" } else { " [stopped]\n" });
    Ok(Message::new("assistant", text))
}

fn run(path: &str, system: Option<&str>) -> weir::Result<()> {
    let runtime = Runtime::new(&RuntimeOptions::default())?;
    let model = Model::open(&runtime, path, &ModelOptions::default())?;
    let mut session = model.session(&SessionOptions::default())?;
    // Another seed for other answers.
    session.set_sampling(&SamplingOptions::default().temperature(0.8).min_p(0.05).seed(1))?;
    let cancel = CANCEL.get_or_init(|| Cancel::new().expect("the library was found above"));
    session.set_cancel(Some(cancel))?;
    const SIGINT: i32 = 2;
    // SAFETY: the handler does what a signal handler may do.
    unsafe { signal(SIGINT, on_interrupt) };

    let mut messages: Vec<Message> = system.map(|text| Message::new("system", text)).into_iter().collect();
    let n_system = messages.len();
    // When the context is full the oldest turns make room.
    let prompt = PromptOptions::default().drop_oldest(true).reserve_tokens(64);

    let mut lines = std::io::stdin().lock().lines();
    loop {
        print!("> ");
        let _ = std::io::stdout().flush();
        let Some(Ok(line)) = lines.next() else { break };
        match line.trim_end_matches('\r') {
            "/undo" => {
                messages.truncate(n_system.max(messages.len().saturating_sub(2)));
                continue;
            }
            "/again" if messages.len() == n_system => continue,
            "/again" => messages.truncate(messages.len() - 1),
            question => messages.push(Message::new("user", question)),
        }
        cancel.clear(); // what was meant for the turn before
        if let Err(error) = session.prompt(&messages, &prompt) {
            eprintln!("read the messages: {}", error.text);
            messages.pop();
            continue;
        }
        let said = answer(&mut session)?;
        messages.push(said);
    }
    println!();
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(path) = arguments.get(1) else {
        eprintln!("usage: chat MODEL.gguf [SYSTEM]");
        return ExitCode::from(2);
    };
    match run(path, arguments.get(2).map(String::as_str)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
