//! Memory of the process; a program of its own, as other tests allocate too.
use weir::*;

/// Pages of memory that the process has resident.
fn resident() -> i64 {
    let statm = std::fs::read_to_string("/proc/self/statm").expect("/proc/self/statm");
    statm.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[cfg(target_os = "linux")]
fn fifty_sessions_leave_no_memory_behind() {
    let path = std::env::var("WEIR_MODEL").expect("WEIR_MODEL names the sample model");
    let runtime = Runtime::new(&RuntimeOptions::default().n_threads(1)).unwrap();
    let model = Model::open(&runtime, path, &ModelOptions::default()).unwrap();
    let options = SessionOptions::default().context_tokens(512);
    let mut after_warm_up = 0;
    for i in 0..60 {
        let mut session = model.session(&options).unwrap();
        session.prompt(&[Message::new("user", "Who are you?")], &PromptOptions::default()).unwrap();
        assert!(session.begin(&GenerateOptions::default().max_tokens(8)).unwrap().all(|event| event.is_ok()));
        let constraint = model.constraint(ConstraintKind::JSON, "").unwrap();
        session.set_constraint(Some(&constraint), 0).unwrap();
        drop(session);
        if i == 9 {
            after_warm_up = resident();
        }
    }
    let plan = model.plan(&options).unwrap().total_bytes as i64;
    let grown = (resident() - after_warm_up) * 4096;
    assert!(grown < plan / 4, "{grown} bytes more after 50 sessions of {plan}");
    assert_eq!(runtime.memory().unwrap().device_bytes, 0);
}
