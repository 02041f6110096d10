//! What of options and messages is made by hand: lists, callbacks, and the texts that they point to.
use crate::*;
use std::ffi::{c_void, CString};

/// Gets how much is done and how much there is; `Break` stops the call.
pub type Progress = Arc<dyn Fn(u64, u64) -> ControlFlow<()> + Send + Sync>;

pub(crate) fn progress_of(progress: Option<&Progress>) -> (sys::weir_progress_fn, *mut c_void) {
    unsafe extern "C" fn on_progress(user: *mut c_void, info: *const sys::weir_progress_info) -> sys::weir_status {
        // SAFETY: as made below, and what the library says.
        guard(|| unsafe { (*user.cast::<Progress>())((*info).done, (*info).total) }.is_continue())
    }
    progress.map_or((None, ptr::null_mut()), |progress| (Some(on_progress), ptr::from_ref(progress).cast_mut().cast()))
}

pub(crate) fn set_bits(field: &mut u32, bits: u32, is_set: bool) {
    *field = if is_set { *field | bits } else { *field & !bits };
}

/// The texts that an options struct points to, and what is wrong with the first that is wrong.
#[derive(Clone, Default)]
pub(crate) struct Texts(Vec<Arc<[u8]>>, Option<Error>);
impl Texts {
    pub(crate) fn bytes(&mut self, bytes: impl Into<Arc<[u8]>>) -> *const c_char {
        self.0.push(bytes.into());
        self.0.last().map_or(ptr::null(), |bytes| bytes.as_ptr().cast())
    }
    pub(crate) fn keep(&mut self, what: &str, text: impl Into<Vec<u8>>) -> *const c_char {
        let text = CString::new(text).unwrap_or_else(|error| {
            self.1.get_or_insert(invalid(format!("{what}: there is a NUL inside, at byte {}", error.nul_position())));
            CString::default()
        });
        self.bytes(text.into_bytes_with_nul())
    }
    pub(crate) fn keep_some(&mut self, what: &str, text: Option<&String>) -> *const c_char {
        text.map_or(ptr::null(), |text| self.keep(what, text.as_str()))
    }
    pub(crate) fn check(&self) -> Result<()> {
        self.1.clone().map_or(Ok(()), Err)
    }
}

impl RuntimeOptions {
    /// Gives log lines of this level and graver ones to `log`. A panic of it is dropped.
    pub fn log(mut self, level: LogLevel, log: impl Fn(LogLevel, &str) + Send + Sync + 'static) -> Self {
        self.raw.log_level = level.0;
        Arc::make_mut(&mut self.more).log = Some(Arc::new(log));
        self
    }
    /// Takes host memory from there.
    pub fn memory(mut self, memory: Arc<dyn Memory>) -> Self {
        Arc::make_mut(&mut self.more).host = Some(memory);
        self
    }
    /// Takes memory of devices from there.
    pub fn device_memory(mut self, memory: Arc<dyn Memory>) -> Self {
        Arc::make_mut(&mut self.more).device = Some(memory);
        self
    }
}

impl SessionOptions {
    /// Policy, budget and options of the policy by the name of a preset, see [`Runtime::presets`].
    pub fn preset(mut self, name: &str) -> Result<Self> {
        sys::load()?;
        let name = self.texts.keep("preset", name);
        self.texts.check()?;
        check(unsafe { sys::weir_session_options_preset(name, &mut self.raw) })?;
        self.policy_options = unsafe { slice(self.raw.policy_options, self.raw.n_policy_options.into()) }.to_vec();
        Ok(self)
    }
    /// One more option of the policy, after those of a preset.
    pub fn policy_option(mut self, key: &str, value: &str) -> Self {
        let (key, value) = (self.texts.keep("key", key), self.texts.keep("value", value));
        self.policy_options.push(sys::weir_key_value { key, value });
        self
    }
}

impl SamplingOptions {
    /// Adds `bias` to the logit of a token, -100..100; -100 forbids it.
    pub fn bias(mut self, token: Token, bias: f32) -> Self {
        self.bias.push(sys::weir_token_bias { token, bias });
        self
    }
}

impl GenerateOptions {
    /// One more text that ends the answer, and is not shown.
    pub fn stop(mut self, text: impl AsRef<[u8]>) -> Self {
        let (text, bytes) = (self.texts.bytes(text.as_ref()), text.as_ref().len() as u64);
        self.stop.push(sys::weir_text { text, bytes });
        self
    }
}

impl PromptOptions {
    /// How the messages become tokens. It has no progress of its own: that of these options is told of them.
    pub fn chat(mut self, chat: ChatOptions) -> Self {
        let told = chat.progress.as_ref().map(|_| "chat: it has a progress; give that to the PromptOptions");
        self.texts.1 = self.texts.1.or(chat.texts.1.clone()).or(told.map(|text| invalid(text.into())));
        let chat = Arc::new(chat);
        self.raw.chat = &chat.raw;
        self.more = Some(chat);
        self
    }
}

impl Message {
    /// A message: its role is "system", "user", "assistant", "tool" or "developer".
    pub fn new(role: impl Into<String>, content: impl Into<String>) -> Message {
        Message { role: role.into(), content: content.into(), ..Message::default() }
    }
}

/// Messages as the library takes them, and their texts.
pub(crate) fn raw_messages(messages: &[Message]) -> Result<(Vec<sys::weir_chat_message>, Texts)> {
    let mut texts = Texts::default();
    let raw = messages.iter().map(|message| message.to_raw(&mut texts)).collect();
    texts.check().map(|()| (raw, texts))
}
