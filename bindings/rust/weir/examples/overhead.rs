//! What the safe layer costs a token, beside the same loop over the C functions in the same run.
//!
//!   cargo run --release --example overhead MODEL.gguf [TOKENS] [ROUNDS]
//!
//! The time of a token outside of the library's own clock for steps and draws (`Stats::decode_ns`) is what calls,
//! events and texts cost. Of the tokens' times the median counts, and of several rounds, whose order changes, the
//! least: other programs only add to it.
use std::ffi::c_void;
use std::hint::black_box;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::ptr;
use std::time::Instant;
use weir::{sys, Cancel, GenerateOptions, Message, Model, ModelOptions, PromptOptions, Runtime, RuntimeOptions};
use weir::{Session, SessionOptions};

/// Collects the time of each token that is outside of steps and draws.
struct Clock {
    session: *mut sys::weir_session,
    last: (Instant, u64),
    times: Vec<u64>,
    n_bytes: u64,
}

impl Clock {
    fn new(session: *mut sys::weir_session, n_tokens: u32) -> Clock {
        let last = (Instant::now(), decode_ns(session));
        Clock { session, last, times: Vec::with_capacity(2 * n_tokens as usize), n_bytes: 0 }
    }
    fn tick(&mut self, n_bytes: u64) {
        let now = (Instant::now(), decode_ns(self.session));
        let outside = (now.0 - self.last.0).as_nanos() as u64;
        self.times.push(outside.saturating_sub(now.1 - self.last.1));
        self.n_bytes += n_bytes;
        self.last = (Instant::now(), now.1);
    }
    fn median(&mut self) -> f64 {
        self.times.sort_unstable();
        self.times[self.times.len() / 2] as f64 / 1000.0
    }
}

/// Any thread may read it, also in a callback.
fn decode_ns(session: *const sys::weir_session) -> u64 {
    let mut stats = sys::weir_session_stats::default();
    // SAFETY: the session is there.
    unsafe { sys::weir_session_get_stats(session, &mut stats) };
    stats.decode_ns
}

fn options(n_tokens: u32) -> GenerateOptions {
    GenerateOptions::default().max_tokens(n_tokens).ignore_eos(true).special_text(true)
}

fn pull(session: &mut Session, n_tokens: u32, clock: &mut Clock) -> weir::Result<()> {
    for event in session.begin(&options(n_tokens))? {
        clock.tick(black_box(event?.text()).len() as u64);
    }
    Ok(())
}

fn push(session: &mut Session, n_tokens: u32, clock: &mut Clock) -> weir::Result<()> {
    session.generate(&options(n_tokens), |event| {
        clock.tick(black_box(event.text()).len() as u64);
        ControlFlow::Continue(())
    })?;
    Ok(())
}

fn raw_options(n_tokens: u32) -> sys::weir_generate_options {
    let flags = sys::WEIR_GENERATE_IGNORE_EOS | sys::WEIR_GENERATE_SPECIAL_TEXT;
    sys::weir_generate_options { flags, max_tokens: n_tokens, ..Default::default() }
}

/// As a program in C pulls.
fn raw_pull(session: *mut sys::weir_session, n_tokens: u32, clock: &mut Clock) {
    let mut event = sys::weir_event::default();
    // SAFETY: the session is there, and this thread alone is in it.
    unsafe {
        assert_eq!(sys::weir_session_begin(session, &raw_options(n_tokens)), sys::WEIR_OK);
        while event.kind != sys::WEIR_EVENT_END {
            assert_eq!(sys::weir_session_next(session, &mut event), sys::WEIR_OK);
            clock.tick(black_box(event.text_bytes));
        }
    }
}

/// As a program in C is called.
fn raw_push(session: *mut sys::weir_session, n_tokens: u32, clock: &mut Clock) {
    unsafe extern "C" fn on_token(user: *mut c_void, event: *const sys::weir_token_event) -> sys::weir_status {
        // SAFETY: as below.
        unsafe { (*user.cast::<Clock>()).tick(black_box((*event).text_bytes)) };
        sys::WEIR_OK
    }
    let mut options = raw_options(n_tokens);
    options.on_token = Some(on_token);
    options.user = ptr::from_mut(clock).cast();
    // SAFETY: the session is there, and this thread alone is in it.
    unsafe { assert_eq!(sys::weir_session_generate(session, &options, ptr::null_mut()), sys::WEIR_OK) };
}

const NAMES: [&str; 4] = ["C, next", "Rust, events", "C, generate", "Rust, generate"];

fn run(path: &str, n_tokens: u32, n_rounds: usize) -> weir::Result<()> {
    let runtime = Runtime::new(&RuntimeOptions::default().n_threads(1))?;
    let model = Model::open(&runtime, path, &ModelOptions::default())?;
    let context = n_tokens + 64;
    let mut session =
        model.session(&SessionOptions::default().policy("raas").budget_tokens(256).context_tokens(context))?;
    let cancel = Cancel::new()?;
    session.set_cancel(Some(&cancel))?;
    let mut least = [f64::INFINITY; 4];
    let mut texts = [0; 4];
    for round in 0..n_rounds {
        for turn in 0..4 {
            let way = (turn + round) % 4;
            session.reset()?;
            session.prompt(&[Message::new("user", "Who are you?")], &PromptOptions::default())?;
            let raw = session.as_raw();
            let mut clock = Clock::new(raw, n_tokens);
            match way {
                0 => raw_pull(raw, n_tokens, &mut clock),
                1 => pull(&mut session, n_tokens, &mut clock)?,
                2 => raw_push(raw, n_tokens, &mut clock),
                _ => push(&mut session, n_tokens, &mut clock)?,
            }
            texts[way] = clock.n_bytes;
            least[way] = least[way].min(clock.median());
        }
    }
    println!("{n_tokens} tokens, {n_rounds} rounds; microseconds a token outside of steps and draws:");
    for (name, time) in NAMES.iter().zip(least) {
        println!("{name:16} {time:7.3}");
    }
    println!("the safe layer costs {:+.3} (events), {:+.3} (generate)", least[1] - least[0], least[3] - least[2]);
    assert_eq!((texts[0], texts[2]), (texts[1], texts[3]), "the same answers");
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let number = |at: usize, usual: u32| arguments.get(at).and_then(|text| text.parse().ok()).unwrap_or(usual);
    let Some(path) = arguments.get(1) else {
        eprintln!("usage: overhead MODEL.gguf [TOKENS] [ROUNDS]");
        return ExitCode::from(2);
    };
    match run(path, number(2, 2000), number(3, 5) as usize) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
