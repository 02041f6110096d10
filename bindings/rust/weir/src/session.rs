//! Sessions: one conversation each.
use crate::*;
use std::ffi::c_void;
use std::io::{self, Read, Write};

type Mask = Arc<dyn Fn(&mut TokenMask<'_>) -> ControlFlow<()> + Send + Sync>;

/// One conversation, for one thread at a time. It keeps its model alive. After a fork of the process only the parent
/// may use or drop it.
pub struct Session(pub(crate) Handle<sys::weir_session, (Model, Option<Arc<Mask>>)>);
// SAFETY: it may move to another thread; no two are in it, as there is no Sync.
unsafe impl Send for Session {}

impl Session {
    pub(crate) fn new<F>(model: Model, mask: Option<Arc<Mask>>, create: F) -> Result<Session>
    where
        F: FnOnce(*mut *mut sys::weir_session) -> sys::weir_status,
    {
        Handle::new((model, mask), |session| unsafe { sys::weir_session_destroy(session) }, create).map(Session)
    }
    /// The model of the session.
    pub fn model(&self) -> &Model {
        &self.0.keep.0
    }
    /// The session of C, for functions that this crate does not have; it is this session's.
    pub fn as_raw(&mut self) -> *mut sys::weir_session {
        self.0.raw
    }
    /// A second session that goes on where this one is, see [`sys::weir_session_fork`].
    pub fn fork(&self) -> Result<Session> {
        let (model, mask) = self.0.keep.clone();
        Session::new(model, mask, |out| unsafe { sys::weir_session_fork(self.0.raw, out) })
    }
    /// Makes the session hold exactly these messages: keeps the longest common beginning of what it holds, and reads
    /// the rest, see [`sys::weir_session_prompt`].
    pub fn prompt(&mut self, messages: &[Message], options: &PromptOptions) -> Result<Prompted> {
        let ((messages, _texts), options) = (raw_messages(messages)?, options.ready()?);
        let mut spans = vec![Span { first: 0, end: 0 }; messages.len()];
        let (first, n, places) = (messages.as_ptr(), messages.len() as u64, spans.as_mut_ptr());
        let report = get(|out| unsafe { sys::weir_session_prompt(self.0.raw, first, n, &options, places, out) })?;
        Ok(Prompted { report, spans })
    }
    /// Lets a function decide which tokens may be drawn, see [`sys::weir_session_set_token_mask`]. Forks have it, too.
    pub fn set_token_mask<F>(&mut self, mask: F) -> Result<()>
    where
        F: Fn(&mut TokenMask<'_>) -> ControlFlow<()> + Send + Sync + 'static,
    {
        self.mask(Some(Arc::new(Arc::new(mask))))
    }
    /// Takes the function of [`set_token_mask`](Session::set_token_mask) away.
    pub fn clear_token_mask(&mut self) -> Result<()> {
        self.mask(None)
    }
    fn mask(&mut self, mask: Option<Arc<Mask>>) -> Result<()> {
        unsafe extern "C" fn on_mask(user: *mut c_void, info: *const sys::weir_mask_info) -> sys::weir_status {
            // SAFETY: as set below, where the session keeps it.
            guard(|| unsafe { (*user.cast::<Mask>())(&mut TokenMask(&*info)).is_continue() })
        }
        let user = mask.as_ref().map_or(ptr::null(), Arc::as_ptr).cast_mut().cast();
        let call: sys::weir_mask_fn = mask.as_ref().map(|_| on_mask as _);
        check(unsafe { sys::weir_session_set_token_mask(self.0.raw, call, user) })?;
        self.0.keep.1 = mask;
        Ok(())
    }
    /// Begins an answer, whose events then come one by one; it can be left at any of them. See
    /// [`sys::weir_session_begin`].
    pub fn begin(&mut self, options: &GenerateOptions) -> Result<Events<'_>> {
        self.begin_answer(options)?;
        Ok(self.events())
    }
    /// The events that are left of the answer that was begun.
    pub fn events(&mut self) -> Events<'_> {
        Events { session: self, is_done: false }
    }
    /// Generates an answer and shows each token to `on_token`; `Break` stops it. An answer that was stopped is no
    /// error. See [`sys::weir_session_generate`].
    pub fn generate<F>(&mut self, options: &GenerateOptions, mut on_token: F) -> Result<GenerateResult>
    where
        F: FnMut(TokenEvent<'_>) -> ControlFlow<()>,
    {
        unsafe extern "C" fn call<F>(user: *mut c_void, event: *const sys::weir_token_event) -> sys::weir_status
        where
            F: FnMut(TokenEvent<'_>) -> ControlFlow<()>,
        {
            // SAFETY: as set below, and what the library says.
            guard(|| unsafe { (*user.cast::<F>())(TokenEvent::new(*event)).is_continue() })
        }
        let (mut options, mut result) = (options.ready()?, GenerateResult::default());
        options.on_token = Some(call::<F>);
        options.user = (&raw mut on_token).cast();
        match check(unsafe { sys::weir_session_generate(self.0.raw, &options, &mut result) }) {
            Err(error) if error.status != Status::CANCELLED => Err(error),
            _ => Ok(result),
        }
    }
    /// The latest answer as a message to keep, and whether a call of a tool in it could not be read. See
    /// [`sys::weir_session_answer`].
    pub fn answer(&self) -> Result<(Message, bool)> {
        let (mut message, mut is_malformed) = (Message::default().to_raw(&mut Texts::default()), 0);
        let size = size_of::<sys::weir_chat_message>() as u32;
        check(unsafe { sys::weir_session_answer(self.0.raw, &mut message, size, &mut is_malformed) })?;
        Ok((unsafe { Message::from_raw(&message) }, is_malformed != 0))
    }
    /// Writes the conversation, see [`sys::weir_session_save`].
    pub fn save<W: Write>(&self, mut to: W) -> Result<()> {
        unsafe extern "C" fn call<W: Write>(user: *mut c_void, info: *const sys::weir_write_info) -> sys::weir_status {
            // SAFETY: as set below, and what the library says.
            let ((to, outcome), info) = unsafe { (&mut *user.cast::<(&mut W, io::Result<()>)>(), &*info) };
            guard(|| {
                *outcome = to.write_all(unsafe { slice(info.data.cast(), info.n_bytes) });
                outcome.is_ok()
            })
        }
        let mut user = (&mut to, Ok(()));
        let status = unsafe { sys::weir_session_save(self.0.raw, Some(call::<W>), (&raw mut user).cast()) };
        with_outcome(check(status), user.1)
    }
    /// Replaces the conversation by one that [`save`](Session::save) wrote, see [`sys::weir_session_restore`]. After an
    /// error it is as after a reset.
    pub fn restore<R: Read>(&mut self, mut from: R) -> Result<()> {
        unsafe extern "C" fn call<R: Read>(user: *mut c_void, info: *const sys::weir_read_info, n: *mut u64) -> i32 {
            // SAFETY: as set below, and what the library says.
            let ((from, outcome), info) = unsafe { (&mut *user.cast::<(&mut R, io::Result<()>)>(), &*info) };
            let mut room: &mut [u8] =
                unsafe { std::slice::from_raw_parts_mut(info.data.cast(), info.n_bytes as usize) };
            guard(|| {
                // There is never less than the library wants. What a signal interrupts is read again.
                *outcome = io::copy(&mut from.take(info.n_bytes), &mut room).map(|n_read| unsafe { *n = n_read });
                outcome.is_ok()
            })
        }
        let mut user = (&mut from, Ok(()));
        let status = unsafe { sys::weir_session_restore(self.0.raw, Some(call::<R>), (&raw mut user).cast()) };
        with_outcome(check(status), user.1)
    }
}

/// Adds what a reader or writer said.
fn with_outcome(result: Result<()>, outcome: io::Result<()>) -> Result<()> {
    result.map_err(|error| match outcome {
        Err(why) => Error { text: format!("{}: {why}", error.text), ..error },
        Ok(()) => error,
    })
}

/// What [`Session::prompt`] did.
#[derive(Clone, Debug)]
pub struct Prompted {
    /// What stayed, what was read and what was forgotten.
    pub report: PromptReport,
    /// Where the text of each message is.
    pub spans: Vec<Span>,
}

/// Which tokens may be drawn, for the function of [`Session::set_token_mask`].
pub struct TokenMask<'a>(&'a sys::weir_mask_info);
impl TokenMask<'_> {
    /// The tokens of the answer so far.
    pub fn tokens(&self) -> &[Token] {
        unsafe { slice(self.0.tokens, self.0.n_tokens.into()) }
    }
    /// Bit i % 32 of word i / 32 is that of token i; what is 0 is not drawn.
    pub fn words(&mut self) -> &mut [u32] {
        // SAFETY: so many words are there, for this call alone.
        unsafe { std::slice::from_raw_parts_mut(self.0.words, self.0.vocab_size.div_ceil(32) as usize) }
    }
}

/// The events of an answer, up to its end or a failure.
pub struct Events<'s> {
    session: &'s mut Session,
    is_done: bool,
}
impl Events<'_> {
    /// The session, between two events.
    pub fn session(&self) -> &Session {
        self.session
    }
}
impl Iterator for Events<'_> {
    type Item = Result<Event>;
    fn next(&mut self) -> Option<Result<Event>> {
        if self.is_done {
            return None;
        }
        let event = self.session.next_event();
        self.is_done = event.as_ref().map_or(true, |event| event.kind == EventKind::END);
        Some(event)
    }
}
impl std::iter::FusedIterator for Events<'_> {}

/// Appends `tokens[i]` to `sessions[i]`, all in one step, see [`sys::weir_step_many`].
pub fn step_many(sessions: &mut [&mut Session], tokens: &[Token]) -> Result<()> {
    if sessions.len() != tokens.len() {
        return Err(invalid(format!("{} tokens for {} sessions", tokens.len(), sessions.len())));
    }
    let raw: Vec<_> = sessions.iter().map(|session| session.0.raw).collect();
    check(unsafe { sys::weir_step_many(raw.as_ptr(), tokens.as_ptr(), raw.len() as u32) })
}

/// The next event of each session, the steps of all together, and how many answers still run, see
/// [`sys::weir_next_many`].
pub fn next_many(sessions: &mut [&mut Session]) -> Result<(Vec<Event>, u32)> {
    let raw: Vec<_> = sessions.iter().map(|session| session.0.raw).collect();
    let mut events = vec![sys::weir_event::default(); raw.len()];
    let (first, n) = (events.as_mut_ptr(), raw.len() as u32);
    let n_running = get(|out| unsafe { sys::weir_next_many(raw.as_ptr(), first, n, out) })?;
    Ok((events.iter().map(|event| unsafe { Event::from_raw(event) }).collect(), n_running))
}
