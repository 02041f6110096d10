//! Memory of the process; a program of its own, as other tests allocate too.
#![cfg(target_os = "linux")]
use weir::*;

/// Memory that the process has resident.
fn resident_bytes() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("/proc/self/status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("VmRSS");
    line.trim().trim_end_matches(" kB").parse::<i64>().unwrap() * 1024
}

#[test]
fn fifty_sessions_leave_no_memory_behind() {
    let path = std::env::var("WEIR_MODEL").expect("WEIR_MODEL names the sample model");
    let runtime = Runtime::new(&RuntimeOptions::default().n_threads(1)).unwrap();
    let model = Model::open(&runtime, path, &ModelOptions::default()).unwrap();
    let options = SessionOptions::default().context_tokens(512);
    let one = || {
        let mut session = model.session(&options).unwrap();
        session.prompt(&[Message::new("user", "Who are you?")], &PromptOptions::default()).unwrap();
        assert!(session.begin(&GenerateOptions::default().max_tokens(8)).unwrap().all(|event| event.is_ok()));
        let constraint = model.constraint(ConstraintKind::JSON, "").unwrap();
        session.set_constraint(Some(&constraint), 0).unwrap();
    };
    (0..10).for_each(|_| one());
    // The library's own memory is counted, that of the binding is not. In one round the process may grow for another
    // reason; what sessions left behind, they would leave in each.
    let of_library = runtime.memory().unwrap().bytes;
    let mut least = i64::MAX;
    for _ in 0..3 {
        let before = resident_bytes();
        (0..50).for_each(|_| one());
        least = least.min(resident_bytes() - before);
        assert_eq!(runtime.memory().unwrap().bytes, of_library);
    }
    assert!(least < 64 << 10, "{least} bytes more after 50 sessions");
    assert_eq!(runtime.memory().unwrap().device_bytes, 0);
}
