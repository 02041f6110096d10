//! Conversations: prompt, edit, regenerate, save, fork, rewind, pages.
use crate::*;
use std::io::{self, Read, Write};

fn user(text: &str) -> Message {
    Message::new("user", text)
}

#[test]
fn a_conversation_is_prompted_edited_and_answered_again() {
    let mut session = session();
    let mut messages = vec![user(SHORT)];
    let first = session.prompt(&messages, &PromptOptions::default()).unwrap();
    assert_eq!((first.report.n_kept, first.report.n_read), (0, first.report.n_tokens));
    let span = first.spans[0];
    let content = &session.tokens().unwrap()[span.first as usize..span.end as usize];
    assert_eq!(model().detokenize(content, DetokenizeFlags::default()).unwrap(), SHORT.as_bytes());
    let answered = answer(&mut session, &GenerateOptions::default());
    messages.push(session.answer().unwrap().0);

    // The next turn keeps what is there, the answer's own tokens too.
    messages.push(user(LONG));
    let n_before = session.tokens().unwrap().len() as u32;
    let second = session.prompt(&messages, &PromptOptions::default()).unwrap().report;
    assert_eq!((second.n_kept, second.n_forgotten), (n_before, 0));

    // Another answer to the first question: back to it, and the same answer, as it is greedy.
    let again = session.prompt(&messages[..1], &PromptOptions::default()).unwrap().report;
    assert_eq!(again.n_tokens, first.report.n_tokens);
    assert!(again.n_forgotten > 0);
    assert_eq!(tokens(&answer(&mut session, &GenerateOptions::default())), tokens(&answered));

    // An edited question: only the edit is read.
    let measured = session.prompt(&[user("Who is it?")], &PromptOptions::default().measure(true)).unwrap().report;
    let edited = session.prompt(&[user("Who is it?")], &PromptOptions::default()).unwrap().report;
    assert!(edited.n_kept > 0 && edited.n_read > 0 && edited.n_kept < first.report.n_tokens);
    assert_eq!((measured.n_kept, measured.n_read), (edited.n_kept, edited.n_read));
    let tokens = model().chat_tokenize(&[user("Who is it?")], &ChatOptions::default()).unwrap();
    assert_eq!(session.tokens().unwrap(), tokens);
    let same = session.prompt_tokens(&tokens, &PromptOptions::default()).unwrap();
    assert_eq!((same.n_kept, same.n_read), (tokens.len() as u32, 0));
}

#[test]
fn oldest_turns_are_dropped_where_the_context_is_full() {
    let mut session = model().session(&SessionOptions::default().context_tokens(128)).unwrap();
    let mut messages = vec![Message::new("system", "Be brief.")];
    for i in 0..12 {
        messages.push(user(&format!("Question {i} about nothing in particular?")));
        messages.push(Message::new("assistant", "Yes."));
    }
    messages.push(user(SHORT));
    let options = PromptOptions::default().reserve_tokens(32);
    assert_eq!(session.prompt(&messages, &options).unwrap_err().status, Status::CONTEXT_FULL);
    let prompted = session.prompt(&messages, &options.drop_oldest(true)).unwrap();
    assert!(prompted.report.n_messages_dropped > 0 && prompted.report.n_tokens <= 96);
    assert_eq!((prompted.spans[1].first, prompted.spans[1].end), (0, 0));
    assert!(prompted.spans[0].end > 0 && prompted.spans.last().unwrap().end > 0);
}

#[test]
fn an_answer_is_continued() {
    let messages = [user(SHORT), Message::new("assistant", "I am a small model")];
    let chat = ChatOptions::default().add_assistant(false).continue_last(true);
    let mut session = session();
    session.prompt(&messages, &PromptOptions::default().chat(chat)).unwrap();
    assert!(text(&answer(&mut session, &GenerateOptions::default())).starts_with(" of Weir"));
}

#[test]
fn a_saved_conversation_goes_on_elsewhere() {
    let whole = tokens(&answer(&mut asked(LONG), &GenerateOptions::default().max_tokens(60)));
    let mut first = asked(LONG);
    let mut shown = tokens(&answer(&mut first, &GenerateOptions::default().max_tokens(30)));
    let mut saved = Vec::new();
    first.save(&mut saved).unwrap();
    let mut second = session();
    second.restore(saved.as_slice()).unwrap();
    assert_eq!(second.tokens().unwrap(), first.tokens().unwrap());
    shown.extend(tokens(&answer(&mut second, &GenerateOptions::default().max_tokens(30))));
    assert_eq!(shown, whole);
    // Few bytes at a time, each time after a signal; bytes of something else behind them, and bytes that end early.
    struct Slow<'a>(&'a [u8], bool);
    impl Read for Slow<'_> {
        fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let n = room.len().min(1000);
            self.0.read(&mut room[..n])
        }
    }
    impl Write for Slow<'_> {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.1 = !self.1;
            if self.1 {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let n = bytes.len().min(1000);
            assert_eq!(bytes[..n], self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let more = [&saved[..], b"more"].concat();
    let mut slow = Slow(&more, false);
    second.restore(&mut slow).unwrap();
    assert_eq!((second.tokens().unwrap(), slow.0), (first.tokens().unwrap(), &b"more"[..]));
    let mut slow = Slow(&more, false);
    first.save(&mut slow).unwrap();
    assert_eq!(slow.0, b"more");
    assert_eq!(second.restore(&saved[..saved.len() / 2]).unwrap_err().status, Status::FORMAT);
    assert!(second.tokens().unwrap().is_empty());
}

#[test]
fn readers_and_writers_fail_in_their_own_words() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or_else(|| io::Error::other("the disk is full"))?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Read for Full {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            Err(io::Error::other("the disk is broken"))
        }
    }
    let mut session = asked(SHORT);
    let error = session.save(Full(100)).unwrap_err();
    assert!(error.status == Status::IO && error.text.ends_with(": the disk is full"), "{error}");
    let error = session.restore(Full(0)).unwrap_err();
    assert!(error.status == Status::IO && error.text.ends_with(": the disk is broken"), "{error}");
}

#[test]
fn a_fork_goes_its_own_way() {
    let mut first = asked(SHORT);
    let mut fork = first.fork().unwrap();
    fork.rewind(4, RewindFlags::default()).unwrap();
    assert_eq!(fork.tokens().unwrap(), &first.tokens().unwrap()[..4]);
    assert_eq!(fork.logits().unwrap_err().status, Status::STATE);
    assert!(first.rewind(10_000, RewindFlags::LOSSY).is_err());
    let tail = first.tokens().unwrap()[4..].to_vec();
    fork.prefill(&tail, None).unwrap();
    let options = GenerateOptions::default().max_tokens(10);
    assert_eq!(tokens(&answer(&mut fork, &options)), tokens(&answer(&mut first, &options)));
    assert_eq!(fork.prefill(&[], None).unwrap_err().status, Status::INVALID_ARG);
    fork.reset().unwrap();
    assert!(fork.tokens().unwrap().is_empty());
    assert_eq!(fork.model().info().unwrap().architecture(), first.model().info().unwrap().architecture());
}

#[test]
fn pages_are_pinned_and_leave() {
    let options = SessionOptions::default().policy("raas").budget_tokens(128).context_tokens(1024);
    let plan = model().plan(&options).unwrap();
    let mut session = model().session(&options).unwrap();
    session.prompt(&[user(LONG)], &PromptOptions::default()).unwrap();
    session.unpin(0, 16).unwrap();
    session.pin(0, 8).unwrap();
    answer(&mut session, &GenerateOptions::default().max_tokens(300).ignore_eos(true));
    let pages = session.pages().unwrap();
    let stats = session.stats().unwrap();
    assert_eq!(pages.len(), (stats.n_tokens as usize).div_ceil(16));
    assert!(pages.iter().all(|page| u32::from(page.resident + page.cold + page.lost) == plan.n_streams));
    assert_eq!(u32::from(pages[0].pinned), plan.n_streams);
    assert!(pages.iter().any(|page| page.lost > 0) && stats.pages_evicted > 0);
    let memory = session.memory().unwrap();
    assert_eq!((memory.plan_bytes, memory.peak_bytes), (plan.total_bytes, plan.total_bytes));
    assert_eq!(memory.allocs_while_decoding, 0);
    assert_eq!(session.pin(5, 5).unwrap_err().status, Status::INVALID_ARG);
}
