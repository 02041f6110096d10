//! Long reasoning in a fixed footprint: the KV memory gets a byte budget before the first token and never exceeds it.
//!
//!   cargo run --example budget MODEL.gguf [BUDGET_TOKENS]
//!
//! Plans a session, checks the plan against what the application can spare, creates the session, lets the model think
//! for far longer than the budget holds, and compares the plan with what was really used.
use std::ops::ControlFlow;
use std::process::ExitCode;
use weir::{GenerateOptions, Message, Model, ModelOptions, PromptOptions, Runtime, RuntimeOptions, SessionOptions};

/// What this application is willing to give to one conversation.
const SPARE_BYTES: u64 = 64 << 20;
const N_START: usize = 12;
const N_STEPS: usize = 120;

/// A chain problem whose answer takes some two thousand tokens of thought.
fn problem() -> String {
    let start: Vec<String> = (0..N_START).map(|i| format!("x{i} = {}", (37 * i + 11) % 100)).collect();
    let last = N_START + N_STEPS - 1;
    format!("Start: {}. Rule: x[n] = x[n-{N_START}] + x[n-5]. Work modulo 100. Find x{last}.", start.join(", "))
}

fn run(path: &str, budget_tokens: u32) -> weir::Result<bool> {
    let runtime = Runtime::new(&RuntimeOptions::default())?;
    let model = Model::open(&runtime, path, &ModelOptions::default())?;

    // RaaS keeps the prompt and the pages that the reasoning still looks at; the stalest page makes room.
    let options = SessionOptions::default().policy("raas").budget_tokens(budget_tokens);

    // The plan allocates nothing. Its total is what the session will take, to the byte, however long it thinks.
    let plan = model.plan(&options)?;
    let (total, kv, budget) = (plan.total_bytes, plan.kv_bytes, plan.budget_tokens);
    println!("plan: {total} bytes, {kv} of them KV pages for {budget} tokens a stream");
    if total > SPARE_BYTES {
        eprintln!("that is more than the {SPARE_BYTES} bytes to spare");
        return Ok(false);
    }

    let mut session = model.session(&options)?;
    let question = problem();
    println!("question: {question}");
    session.prompt(&[Message::new("user", question)], &PromptOptions::default())?;
    let mut answer = String::new();
    session.generate(&GenerateOptions::default(), |event| {
        answer.push_str(&event.text());
        ControlFlow::Continue(())
    })?;
    println!("answer: {}", answer.rsplit('\n').next().unwrap_or_default());

    let (stats, memory) = (session.stats()?, session.memory()?);
    println!(
        "thought for {} tokens; {} pages left the KV memory, at most {} were in it",
        stats.n_decode, stats.pages_evicted, stats.pages_resident_max
    );
    println!("peak: {} bytes; allocations while decoding: {}", memory.peak_bytes, memory.allocs_while_decoding);
    Ok(memory.peak_bytes == total && memory.allocs_while_decoding == 0)
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(path) = arguments.get(1) else {
        eprintln!("usage: budget MODEL.gguf [BUDGET_TOKENS]");
        return ExitCode::from(2);
    };
    match run(path, arguments.get(2).and_then(|tokens| tokens.parse().ok()).unwrap_or(1024)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
