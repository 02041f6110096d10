//! Callbacks: progress, logs, memory, and panics in them.
use crate::*;
use std::alloc::Layout;
use std::ops::ControlFlow;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// The words of the panic of a call; nothing is printed about it.
fn panic_of<T>(call: impl FnOnce() -> T) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).err().expect("a panic");
    panic.downcast_ref::<&str>().expect("words").to_string()
}

#[test]
fn panics_go_on_when_the_call_has_ended() {
    let mut session = asked(LONG);
    let n_prompt = session.tokens().unwrap().len();
    let mut n = 0;
    let words = panic_of(|| {
        session.generate(&GenerateOptions::default(), |_| {
            n += 1;
            if n == 3 {
                panic!("in a token");
            }
            ControlFlow::Continue(())
        })
    });
    assert_eq!(words, "in a token");
    // The tokens that were shown are there, and the session works.
    assert_eq!(session.tokens().unwrap().len(), n_prompt + 3);
    assert!(answer(&mut session, &GenerateOptions::default().max_tokens(3)).len() > 3);

    session.set_token_mask(|_| panic!("in a mask")).unwrap();
    assert_eq!(panic_of(|| session.sample()), "in a mask");
    assert_eq!(panic_of(|| session.begin(&GenerateOptions::default()).unwrap().last()), "in a mask");
    assert_eq!(panic_of(|| session.generate(&GenerateOptions::default(), |_| ControlFlow::Continue(()))), "in a mask");
    session.set_token_mask(|_| ControlFlow::Break(())).unwrap();
    assert_eq!(session.sample().unwrap_err().status, Status::CANCELLED);
    session.clear_token_mask().unwrap();

    let options = ModelOptions::default().progress(|_, _| panic!("in progress"));
    assert_eq!(panic_of(|| Model::open(runtime(), path(), &options)), "in progress");
    let progress: Progress = Arc::new(|_, _| panic!("in progress"));
    assert_eq!(panic_of(|| session.prefill(&[1, 2, 3], Some(&progress))), "in progress");

    struct Panics;
    impl std::io::Write for Panics {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            panic!("in a writer")
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    impl std::io::Read for Panics {
        fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
            panic!("in a reader")
        }
    }
    assert_eq!(panic_of(|| session.save(Panics)), "in a writer");
    assert_eq!(panic_of(|| session.restore(Panics)), "in a reader");
    assert!(session.tokens().unwrap().is_empty());
}

#[test]
fn progress_tells_how_far_it_is_and_stops() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let told = seen.clone();
    let options = ModelOptions::default().progress(move |done, total| {
        told.lock().unwrap().push((done, total));
        ControlFlow::Continue(())
    });
    let model = Model::open(runtime(), path(), &options).unwrap();
    let bytes = model.info().unwrap().file_bytes();
    assert_eq!(seen.lock().unwrap().last(), Some(&(bytes, bytes)));

    let stop = ModelOptions::default().progress(|_, _| ControlFlow::Break(()));
    assert_eq!(Model::open(runtime(), path(), &stop).err().unwrap().status, Status::CANCELLED);
    let stop = TokenizeOptions::default().progress(|_, _| ControlFlow::Break(()));
    assert_eq!(model.tokenize("a", &stop).unwrap_err().status, Status::CANCELLED);
    let stop = ChatOptions::default().progress(|_, _| ControlFlow::Break(()));
    assert_eq!(model.chat_tokenize(&[Message::new("user", "a")], &stop).unwrap_err().status, Status::CANCELLED);
    let n = Arc::new(AtomicUsize::new(0));
    let calls = n.clone();
    let count = PromptOptions::default().progress(move |_, _| {
        calls.fetch_add(1, Ordering::Relaxed);
        ControlFlow::Continue(())
    });
    session().prompt(&[Message::new("user", LONG)], &count).unwrap();
    assert!(n.load(Ordering::Relaxed) > 0);
    let stop = PromptOptions::default().progress(|_, _| ControlFlow::Break(()));
    let mut session = session();
    assert_eq!(session.prompt(&[Message::new("user", LONG)], &stop).unwrap_err().status, Status::CANCELLED);
    assert!(session.tokens().unwrap().is_empty());
    // A prompt's own options alone tell of its progress.
    let chat = ChatOptions::default().progress(|_, _| ControlFlow::Continue(()));
    let options = PromptOptions::default().chat(chat);
    for error in [
        session.prompt(&[Message::new("user", LONG)], &options).unwrap_err(),
        session.prompt_tokens(&[1, 2, 3], &options).unwrap_err(),
    ] {
        assert_eq!(error.status, Status::INVALID_ARG);
        assert_eq!(error.text, "chat: it has a progress; give that to the PromptOptions");
    }
    assert!(session.tokens().unwrap().is_empty());
}

#[test]
fn log_lines_come_to_the_hook_and_its_panics_are_dropped() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let told = lines.clone();
    let options = RuntimeOptions::default().n_threads(1).log(LogLevel::DEBUG, move |level, line| {
        told.lock().unwrap().push((level, line.to_string()));
        panic!("in a log");
    });
    let model = open(&options);
    drop(model.session(&SessionOptions::default().context_tokens(128)).unwrap());
    assert!(!lines.lock().unwrap().is_empty());
    assert!(lines.lock().unwrap().iter().all(|(level, line)| *level <= LogLevel::DEBUG && !line.is_empty()));
    drop(model);
    drop(options);
    assert_eq!(Arc::strong_count(&lines), 1); // nothing keeps the hook any more
}

/// The system's memory, counted.
#[derive(Default)]
struct Counted {
    bytes: AtomicI64,
    refuses: AtomicBool,
    panics: AtomicBool,
}

unsafe impl Memory for Counted {
    fn allocate(&self, kind: MemoryKind, layout: Layout) -> *mut u8 {
        assert_eq!(kind, MemoryKind::HOST);
        if self.panics.load(Ordering::Relaxed) {
            panic!("in memory");
        }
        if self.refuses.load(Ordering::Relaxed) {
            return std::ptr::null_mut();
        }
        self.bytes.fetch_add(layout.size() as i64, Ordering::Relaxed);
        unsafe { std::alloc::alloc(layout) }
    }
    unsafe fn release(&self, _: MemoryKind, memory: *mut u8, layout: Layout) {
        self.bytes.fetch_sub(layout.size() as i64, Ordering::Relaxed);
        unsafe { std::alloc::dealloc(memory, layout) }
    }
}

#[test]
fn memory_comes_from_the_hooks_and_goes_back() {
    let memory = Arc::new(Counted::default());
    let model = open(&RuntimeOptions::default().n_threads(1).memory(memory.clone()));
    let options = SessionOptions::default().context_tokens(256);
    let before = memory.bytes.load(Ordering::Relaxed);
    let session = model.session(&options).unwrap();
    let plan = model.plan(&options).unwrap();
    assert_eq!(memory.bytes.load(Ordering::Relaxed) - before, plan.total_bytes as i64);
    for refuse in [&memory.refuses, &memory.panics] {
        refuse.store(true, Ordering::Relaxed);
        let error = model.session(&options).err().unwrap();
        assert!(error.status == Status::OUT_OF_MEMORY && !error.text.is_empty(), "{error}");
        refuse.store(false, Ordering::Relaxed);
    }
    drop(model);
    drop(session);
    assert_eq!(memory.bytes.load(Ordering::Relaxed), 0);
    assert_eq!(Arc::strong_count(&memory), 1);
}
