//! Code in the README's prose and tables, which is compiled here. Its blocks are doc tests.
use crate::*;
use std::ops::ControlFlow;

/// A piece of code, which the README has, too.
macro_rules! said {
    ($code:expr) => {{
        let code = concat!("`", stringify!($code), "`");
        assert!(include_str!("../../README.md").contains(code), "the README does not have {code}");
        $code
    }};
}

#[test]
fn the_readme_says_what_compiles() -> Result<()> {
    let model = model();
    let options = said!(SessionOptions::default().policy("raas").budget_tokens(1024));
    let mut session = model.session(&options)?;
    let cancel = Cancel::new()?;
    said!(session.set_cancel(Some(&cancel)))?;
    session.set_cancel(None)?;
    session.prompt(&[Message::new("user", SHORT)], &PromptOptions::default())?;
    let options = GenerateOptions::default();
    assert!(said!(session.begin(&options)?).next().unwrap()?.stop == Stop::NONE);
    assert!(said!(session.events()).last().unwrap()?.stop == said!(Stop::EOS));
    session.prompt(&[Message::new("user", SHORT)], &PromptOptions::default())?;
    let on_token = |_: TokenEvent<'_>| ControlFlow::Continue(());
    assert!(said!(session.generate(&options, on_token))?.n_tokens > 0);
    let options = TokenizeOptions::default();
    assert!(!said!(model.tokenize(b"\xff", &options))?.is_empty());
    Ok(())
}
