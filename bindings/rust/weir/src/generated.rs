//! Written by generate.py from include/weir/*.h; not to be edited.
//! Longer than 600 lines because it has the headers' documentation.
use super::*;
use std::borrow::Cow;
use std::marker::PhantomData;
use std::ops::ControlFlow;
use std::ptr;
use std::sync::Arc;

#[doc(inline)]
pub use weir_sys::{
    weir_chat_ability_bits as ChatAbilities,
    weir_constraint_kind as ConstraintKind,
    weir_detokenize_flag_bits as DetokenizeFlags,
    weir_device_kind as DeviceKind,
    weir_device_type as DeviceType,
    weir_event_kind as EventKind,
    weir_generate_result as GenerateResult,
    weir_log_level as LogLevel,
    weir_logprob as LogProb,
    weir_memory_counters as RuntimeMemory,
    weir_memory_info as SessionMemory,
    weir_memory_kind as MemoryKind,
    weir_page_state as PageState,
    weir_plan_info as Plan,
    weir_prompt_report as PromptReport,
    weir_rewind_flag_bits as RewindFlags,
    weir_segment as Segment,
    weir_session_stats as Stats,
    weir_span as Span,
    weir_special_tokens as SpecialTokens,
    weir_status_code as Status,
    weir_stop_reason as Stop,
    weir_token as Token,
    weir_token_flag_bits as TokenFlags,
};

/// Options of [`weir_runtime_create`](sys::weir_runtime_create). What is not set has its default.
#[derive(Clone)]
pub struct RuntimeOptions {
    pub(crate) raw: sys::weir_runtime_options,
    pub(crate) texts: Texts,
    pub(crate) more: Arc<Hooks>,
}
// SAFETY: its pointers are to what never changes, and is static or kept by an Arc.
unsafe impl Send for RuntimeOptions {}
unsafe impl Sync for RuntimeOptions {}
impl Default for RuntimeOptions {
    fn default() -> Self {
        let raw = sys::weir_runtime_options { ..Default::default() };
        RuntimeOptions { raw, texts: Texts::default(), more: Default::default(), }
    }
}
impl RuntimeOptions {
    /// Threads that compute, the caller's included; 1..256. 0 (default): the cores that this process may use, at most
    /// the whole ones in its container's limit (at least 1).
    pub fn n_threads(mut self, n_threads: u32) -> Self {
        self.raw.n_threads = n_threads;
        self
    }
    /// Folder of the backend modules (`libweir_cuda.so`). None (default): that of the library itself. A relative one
    /// means the folder that is current now. It is copied, and shorter than 1024 bytes, with the current folder if it
    /// is relative.
    pub fn backend_dir(mut self, backend_dir: impl Into<Vec<u8>>) -> Self {
        self.raw.backend_dir = self.texts.keep("backend_dir", backend_dir);
        self
    }
    /// Which device [`WEIR_DEVICE_VULKAN`](sys::WEIR_DEVICE_VULKAN) is: its index
    /// ([`weir_device_info`](sys::weir_device_info)), or a part of its name, in any case of letters. None (default): a
    /// discrete GPU before an integrated one before a virtual one before a driver that computes on the processor, of
    /// equals the one with most memory. It is copied, and shorter than 256 bytes. A session on it fails with
    /// [`WEIR_ERR_NOT_FOUND`](sys::WEIR_ERR_NOT_FOUND) if there is no such device, and
    /// [`WEIR_ERR_INVALID_ARG`](sys::WEIR_ERR_INVALID_ARG) if several have the name. Both list the devices. A process
    /// uses one device: a session on a second one fails with [`WEIR_ERR_UNSUPPORTED`](sys::WEIR_ERR_UNSUPPORTED), which
    /// names both.
    pub fn vulkan_device(mut self, vulkan_device: impl Into<Vec<u8>>) -> Self {
        self.raw.vulkan_device = self.texts.keep("vulkan_device", vulkan_device);
        self
    }
    /// Folder (UTF-8) for what drivers compiled, so that the first session of the next process need not wait for it:
    /// Vulkan's pipelines, one file for each device, up to 128 MiB. It is made when it is needed. It and the files must
    /// belong to the user and be writable by nobody else, and a link to the folder must be the user's own too. What is
    /// damaged or of another driver is written anew, and what cannot be read or written costs time and a log line,
    /// never a session. So does a relative folder where the current one is gone. None (default): nothing is kept. It is
    /// copied, made absolute, and shorter than 1024 bytes.
    pub fn cache_dir(mut self, cache_dir: impl Into<Vec<u8>>) -> Self {
        self.raw.cache_dir = self.texts.keep("cache_dir", cache_dir);
        self
    }
    /// The options so far, unless a text is wrong; they point into these.
    pub(crate) fn ready(&self) -> Result<sys::weir_runtime_options> {
        self.texts.check().map(|()| self.raw)
    }
}

/// Options of [`weir_model_open`](sys::weir_model_open). What is not set has its default.
#[derive(Clone)]
pub struct ModelOptions {
    pub(crate) raw: sys::weir_model_options,
    pub(crate) texts: Texts,
    pub(crate) progress: Option<Progress>,
}
// SAFETY: its pointers are to what never changes, and is static or kept by an Arc.
unsafe impl Send for ModelOptions {}
unsafe impl Sync for ModelOptions {}
impl Default for ModelOptions {
    fn default() -> Self {
        let raw = sys::weir_model_options { ..Default::default() };
        ModelOptions { raw, texts: Texts::default(), progress: Default::default(), }
    }
}
impl ModelOptions {
    /// Load the tokenizer only; files without weights are accepted, sessions and plans are refused
    /// ([`WEIR_ERR_STATE`](sys::WEIR_ERR_STATE)).
    pub fn vocab_only(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_MODEL_VOCAB_ONLY, is_set);
        self
    }
    /// Read the whole file at once, so that the first tokens do not wait for the disk.
    pub fn prefetch(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_MODEL_PREFETCH, is_set);
        self
    }
    /// Read the file into memory from the allocator hooks instead of mapping it: as many bytes as the file has, in the
    /// runtime's counters. Once the call has returned, the file may change.
    pub fn copy(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_MODEL_COPY, is_set);
        self
    }
    /// Read only what the file says about itself, keys and tensors, of any GGUF file, also of one that is no model.
    /// Every call that needs more fails with [`WEIR_ERR_STATE`](sys::WEIR_ERR_STATE): sessions, plans and all of
    /// weir/text.h. Of a model in several files, the part at the path, as with
    /// [`WEIR_MODEL_VOCAB_ONLY`](sys::WEIR_MODEL_VOCAB_ONLY).
    pub fn describe_only(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_MODEL_DESCRIBE_ONLY, is_set);
        self
    }
    /// The options so far, unless a text is wrong; they point into these.
    pub(crate) fn ready(&self) -> Result<sys::weir_model_options> {
        let (progress, progress_user) = progress_of(self.progress.as_ref());
        self.texts.check().map(|()| sys::weir_model_options { progress, progress_user, ..self.raw })
    }
    /// Calls `progress` with how much is done, and how much there is. `Break` ends the call with
    /// [`Status::CANCELLED`]; a panic goes on in the caller.
    pub fn progress<F>(mut self, progress: F) -> Self
    where
        F: Fn(u64, u64) -> ControlFlow<()> + Send + Sync + 'static,
    {
        self.progress = Some(Arc::new(progress));
        self
    }
}

/// Options of [`weir_tokenize_with`](sys::weir_tokenize_with). What is not set has its default.
#[derive(Clone)]
pub struct TokenizeOptions {
    pub(crate) raw: sys::weir_tokenize_options,
    pub(crate) texts: Texts,
    pub(crate) progress: Option<Progress>,
}
// SAFETY: its pointers are to what never changes, and is static or kept by an Arc.
unsafe impl Send for TokenizeOptions {}
unsafe impl Sync for TokenizeOptions {}
impl Default for TokenizeOptions {
    fn default() -> Self {
        let raw = sys::weir_tokenize_options { ..Default::default() };
        TokenizeOptions { raw, texts: Texts::default(), progress: Default::default(), }
    }
}
impl TokenizeOptions {
    /// Text such as "\<|`im_end`|\>" becomes the control token of that name. Off: it is plain text. Not for text of
    /// others: see [`weir_chat_tokenize`](sys::weir_chat_tokenize).
    pub fn special(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_TOKENIZE_SPECIAL, is_set);
        self
    }
    /// Add the begin/end tokens that the model's file asks for.
    pub fn bos_eos(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_TOKENIZE_BOS_EOS, is_set);
        self
    }
    /// The options so far, unless a text is wrong; they point into these.
    pub(crate) fn ready(&self) -> Result<sys::weir_tokenize_options> {
        let (progress, progress_user) = progress_of(self.progress.as_ref());
        self.texts.check().map(|()| sys::weir_tokenize_options { progress, progress_user, ..self.raw })
    }
    /// Calls `progress` with how much is done, and how much there is. `Break` ends the call with
    /// [`Status::CANCELLED`]; a panic goes on in the caller.
    pub fn progress<F>(mut self, progress: F) -> Self
    where
        F: Fn(u64, u64) -> ControlFlow<()> + Send + Sync + 'static,
    {
        self.progress = Some(Arc::new(progress));
        self
    }
}

/// Options of [`weir_chat_tokenize`](sys::weir_chat_tokenize) and [`weir_session_prompt`](sys::weir_session_prompt).
/// What is not set has its default, but an answer is opened: `add_assistant` is set.
#[derive(Clone)]
pub struct ChatOptions {
    pub(crate) raw: sys::weir_chat_options,
    pub(crate) texts: Texts,
    pub(crate) progress: Option<Progress>,
}
// SAFETY: its pointers are to what never changes, and is static or kept by an Arc.
unsafe impl Send for ChatOptions {}
unsafe impl Sync for ChatOptions {}
impl Default for ChatOptions {
    fn default() -> Self {
        let raw = sys::weir_chat_options { flags: sys::WEIR_CHAT_ADD_ASSISTANT,
            message_bytes: size_of::<sys::weir_chat_message>() as u32, ..Default::default() };
        ChatOptions { raw, texts: Texts::default(), progress: Default::default(), }
    }
}
impl ChatOptions {
    /// End with the opening of an assistant turn, so that the model answers.
    pub fn add_assistant(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_CHAT_ADD_ASSISTANT, is_set);
        self
    }
    /// The session already holds a conversation that ends in an answer of the model without its end-of-turn token:
    /// close that turn first, then render `messages` only.
    pub fn continue_turn(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_CHAT_CONTINUE, is_set);
        self
    }
    /// The last message is the beginning of an answer: leave its turn open, so that the model goes on with it. Needs an
    /// "assistant" message at the end that the template writes as it is, but for white space around it.
    pub fn continue_last(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_CHAT_CONTINUE_LAST, is_set);
        self
    }
    /// A chat template (Jinja) to use instead of the file's, at most 2^18 bytes, or the name of a built-in one:
    /// "chatml", "llama3", "mistral", "gemma", "granite", "glm4" or "harmony". None (default): the file's.
    pub fn template_text(mut self, template_text: impl Into<Vec<u8>>) -> Self {
        self.raw.template_text = self.texts.keep("template_text", template_text);
        self
    }
    /// The tools that the model may call: a JSON list as in OpenAI's API. None (default): none.
    /// [`WEIR_ERR_UNSUPPORTED`](sys::WEIR_ERR_UNSUPPORTED) where the template has no place for them.
    pub fn tools_json(mut self, tools_json: impl Into<Vec<u8>>) -> Self {
        self.raw.tools_json = self.texts.keep("tools_json", tools_json);
        self
    }
    /// More variables of the template: a JSON object, such as {"`enable_thinking`": false}. None (default): none. One
    /// that the template never reads is [`WEIR_ERR_NOT_FOUND`](sys::WEIR_ERR_NOT_FOUND), so that nothing is switched
    /// off in vain.
    pub fn variables_json(mut self, variables_json: impl Into<Vec<u8>>) -> Self {
        self.raw.variables_json = self.texts.keep("variables_json", variables_json);
        self
    }
    /// What `strftime_now` sees, in seconds since 1970, as UTC; 0 (default): the time of the call.
    pub fn unix_time(mut self, unix_time: i64) -> Self {
        self.raw.unix_time = unix_time;
        self
    }
    /// The options so far, unless a text is wrong; they point into these.
    pub(crate) fn ready(&self) -> Result<sys::weir_chat_options> {
        let (progress, progress_user) = progress_of(self.progress.as_ref());
        self.texts.check().map(|()| sys::weir_chat_options { progress, progress_user, ..self.raw })
    }
    /// Calls `progress` with how much is done, and how much there is. `Break` ends the call with
    /// [`Status::CANCELLED`]; a panic goes on in the caller.
    pub fn progress<F>(mut self, progress: F) -> Self
    where
        F: Fn(u64, u64) -> ControlFlow<()> + Send + Sync + 'static,
    {
        self.progress = Some(Arc::new(progress));
        self
    }
}

/// Options of [`weir_plan`](sys::weir_plan) and [`weir_session_create`](sys::weir_session_create). What is not set has
/// its default.
#[derive(Clone)]
pub struct SessionOptions {
    pub(crate) raw: sys::weir_session_options,
    pub(crate) texts: Texts,
    pub(crate) policy_options: Vec<sys::weir_key_value>,
}
// SAFETY: its pointers are to what never changes, and is static or kept by an Arc.
unsafe impl Send for SessionOptions {}
unsafe impl Sync for SessionOptions {}
impl Default for SessionOptions {
    fn default() -> Self {
        let raw = sys::weir_session_options { ..Default::default() };
        SessionOptions { raw, texts: Texts::default(), policy_options: Default::default(), }
    }
}
impl SessionOptions {
    /// On a device: keys and values stay in host memory and the processor computes the attention of steps; the device
    /// has the weights and computes everything else, also most attention of prompts, over pages that pass through it.
    /// For contexts whose keys and values the device has no room for. Every policy and option works as on the CPU.
    /// Models with recurrent layers are refused; [`WEIR_DEVICE_AUTO`](sys::WEIR_DEVICE_AUTO) takes the CPU for them.
    /// lfps does it without this flag, and psa with recall=on and a budget below the context. On the CPU it changes
    /// nothing.
    pub fn host_attention(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_SESSION_HOST_ATTENTION, is_set);
        self
    }
    /// `WEIR_DEVICE_*`. Default [`WEIR_DEVICE_AUTO`](sys::WEIR_DEVICE_AUTO).
    pub fn device(mut self, device: DeviceType) -> Self {
        self.raw.device = device.0;
        self
    }
    /// Most positions the conversation may reach. 0 (default): what the model was trained for.
    pub fn context_tokens(mut self, context_tokens: u32) -> Self {
        self.raw.context_tokens = context_tokens;
        self
    }
    /// Tokens of one prefill chunk, 1..4096. Default 512, less when the context is smaller.
    pub fn batch_tokens(mut self, batch_tokens: u32) -> Self {
        self.raw.batch_tokens = batch_tokens;
        self
    }
    /// Tokens of one KV page. Only 16 (default) exists.
    pub fn page_tokens(mut self, page_tokens: u32) -> Self {
        self.raw.page_tokens = page_tokens;
        self
    }
    /// KV budget in tokens per (layer, kv head) stream. 0 (default): the whole context.
    pub fn budget_tokens(mut self, budget_tokens: u32) -> Self {
        self.raw.budget_tokens = budget_tokens;
        self
    }
    /// Longest prompt to plan for where a policy keeps prompts beyond the budget. Default 0.
    pub fn max_prompt_tokens(mut self, max_prompt_tokens: u32) -> Self {
        self.raw.max_prompt_tokens = max_prompt_tokens;
        self
    }
    /// KV budget in bytes for all streams together, instead of `budget_tokens`: as many tokens per stream as fit into
    /// it. A policy that keeps more than its budget (quest, hybrid, dense layers of h2o and tova) takes more, as the
    /// plan shows. 0 (default): not used.
    pub fn budget_bytes(mut self, budget_bytes: u64) -> Self {
        self.raw.budget_bytes = budget_bytes;
        self
    }
    /// Host memory for pages outside the KV pool, at least one page of each stream that the budget rules. With recall
    /// (arkvale, and raas, hybrid and psa with recall=on) steps bring pages back from it, 0 (default) is what the whole
    /// context needs at worst, and when it is full, pages move to the spill file. Without one, or when that is full
    /// too, those that were wanted the longest ago are dropped for good. 0 is never more than half of the memory of the
    /// machine, or of the container's limit. `spill_tokens` of the plan says what is held for sure. Other policies that
    /// let pages go keep copies there, which no step reads, on the CPU only, and 0 (default) keeps none.
    pub fn spill_budget_bytes(mut self, spill_budget_bytes: u64) -> Self {
        self.raw.spill_budget_bytes = spill_budget_bytes;
        self
    }
    /// "dense" (also None, default), "sink", "h2o", "tova", "quest", "raas", "hybrid", "random", "arkvale", "psa",
    /// "lfps", "keyformer", "scissorhands". Copied.
    pub fn policy(mut self, policy: impl Into<Vec<u8>>) -> Self {
        self.raw.policy = self.texts.keep("policy", policy);
        self
    }
    /// The part of `spill_budget_bytes` for uncompressed pages, all but those that were wanted the longest ago. 0
    /// (default): all of it if it holds the whole context so, else as much as leaves room for the other pages at four
    /// fifths of their bytes, at least a quarter.
    pub fn spill_raw_bytes(mut self, spill_raw_bytes: u64) -> Self {
        self.raw.spill_raw_bytes = spill_raw_bytes;
        self
    }
    /// Path (UTF-8) of a file of `spill_file_bytes` for the pages that `spill_budget_bytes` have no room for. Nothing
    /// may be there: the file is created, and its name removed at once. Used while the session is created, and for its
    /// forks: a relative one means the folder that is current in [`weir_session_create`](sys::weir_session_create).
    /// None (default): no file.
    pub fn spill_path(mut self, spill_path: impl Into<Vec<u8>>) -> Self {
        self.raw.spill_path = self.texts.keep("spill_path", spill_path);
        self
    }
    /// Size of that file, reserved on the disk at once. 0 (default): no file.
    pub fn spill_file_bytes(mut self, spill_file_bytes: u64) -> Self {
        self.raw.spill_file_bytes = spill_file_bytes;
        self
    }
    /// No page is dropped in silence. A call that would append tokens fails, and appends none, with
    /// [`WEIR_ERR_BUDGET`](sys::WEIR_ERR_BUDGET) when the pages that they fill have no room; with
    /// [`WEIR_ERR_IO`](sys::WEIR_ERR_IO) when a page is lost with the spill file, and with
    /// [`WEIR_ERR_FORMAT`](sys::WEIR_ERR_FORMAT) when one proves to be damaged, and so do all later ones until
    /// [`weir_session_reset`](sys::weir_session_reset).
    pub fn spill_strict(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.spill_flags, sys::WEIR_SPILL_STRICT, is_set);
        self
    }
    /// All spilled pages are compressed at once.
    pub fn spill_no_raw(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.spill_flags, sys::WEIR_SPILL_NO_RAW, is_set);
        self
    }
    /// On the CPU and with `spill_budget_bytes` 0, the store gets what makes the session take half of the memory that
    /// policy dense would take for the same context. The pages that were wanted the longest ago are dropped for good
    /// when it is full. Where the store would then be smaller than the pool, the pool holds the whole context instead,
    /// and nothing is stored. Attention on the host counts as the CPU; with attention on a device it changes nothing.
    pub fn spill_half(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.spill_flags, sys::WEIR_SPILL_HALF, is_set);
        self
    }
    /// Host memory for snapshots of the state of recurrent layers, at least one of them
    /// (`weir_plan_info.snapshot_bytes` / `n_snapshots`). A conversation goes back to a snapshot, and reads again from
    /// there. 0 (default): four. Not read for models that have attention in every layer.
    pub fn snapshot_budget_bytes(mut self, snapshot_budget_bytes: u64) -> Self {
        self.raw.snapshot_budget_bytes = snapshot_budget_bytes;
        self
    }
    /// There is a snapshot at every multiple of so many tokens, 16 or more, and where prompts begin and end, as many as
    /// have room, at most 1,024. Those of the last prompt stay however long the answer is. With room for one, that of
    /// its end does. 0 (default): 1,024.
    pub fn snapshot_tokens(mut self, snapshot_tokens: u32) -> Self {
        self.raw.snapshot_tokens = snapshot_tokens;
        self
    }
    /// `WEIR_KV_*`: what keys and values are stored in. [`WEIR_KV_BF16`](sys::WEIR_KV_BF16) (0) is the default. Budgets
    /// in bytes hold more tokens in smaller formats.
    pub fn kv_format(mut self, kv_format: i32) -> Self {
        self.raw.kv_format = kv_format;
        self
    }
    /// The options so far, unless a text is wrong; they point into these.
    pub(crate) fn ready(&self) -> Result<sys::weir_session_options> {
        let (policy_options, n_policy_options) = (self.policy_options.as_ptr(), self.policy_options.len() as u32);
        self.texts.check().map(|()| sys::weir_session_options { policy_options, n_policy_options, ..self.raw })
    }
}

/// How the next token is drawn. Applied in this order: bias, repetition penalty, frequency and presence penalty,
/// temperature, top-k, top-p, min-p. What is not set has its default.
#[derive(Clone)]
pub struct SamplingOptions {
    pub(crate) raw: sys::weir_sampling_options,
    pub(crate) texts: Texts,
    pub(crate) bias: Vec<sys::weir_token_bias>,
}
// SAFETY: its pointers are to what never changes, and is static or kept by an Arc.
unsafe impl Send for SamplingOptions {}
unsafe impl Sync for SamplingOptions {}
impl Default for SamplingOptions {
    fn default() -> Self {
        let raw = sys::weir_sampling_options { ..Default::default() };
        SamplingOptions { raw, texts: Texts::default(), bias: Default::default(), }
    }
}
impl SamplingOptions {
    /// Keep the k most probable tokens; 0 (default): all.
    pub fn top_k(mut self, top_k: u32) -> Self {
        self.raw.top_k = top_k;
        self
    }
    /// 0 (default): greedy, the most probable token, the lowest id on a tie. At most 100.
    pub fn temperature(mut self, temperature: f32) -> Self {
        self.raw.temperature = temperature;
        self
    }
    /// Keep the smallest set with this probability; (0, 1\]; 0 (default) means 1, off.
    pub fn top_p(mut self, top_p: f32) -> Self {
        self.raw.top_p = top_p;
        self
    }
    /// Drop tokens less probable than this fraction of the best; \[0, 1). Default 0, off.
    pub fn min_p(mut self, min_p: f32) -> Self {
        self.raw.min_p = min_p;
        self
    }
    /// Divides positive logits (multiplies negative ones) of recent tokens; 0 (default) means 1, off. At most 100.
    pub fn repeat_penalty(mut self, repeat_penalty: f32) -> Self {
        self.raw.repeat_penalty = repeat_penalty;
        self
    }
    /// Recent tokens that the penalty looks at, at most 4096; 0 (default): 64.
    pub fn repeat_last_n(mut self, repeat_last_n: u32) -> Self {
        self.raw.repeat_last_n = repeat_last_n;
        self
    }
    /// Same seed, same options, same logits: same tokens. Default 0.
    pub fn seed(mut self, seed: u64) -> Self {
        self.raw.seed = seed;
        self
    }
    /// Taken from the logits of the recent tokens, of those that `repeat_last_n` says; -2..2, below 0 they become
    /// likelier. Default 0.
    pub fn presence_penalty(mut self, presence_penalty: f32) -> Self {
        self.raw.presence_penalty = presence_penalty;
        self
    }
    /// The same, as often as each is among them. Default 0.
    pub fn frequency_penalty(mut self, frequency_penalty: f32) -> Self {
        self.raw.frequency_penalty = frequency_penalty;
        self
    }
    /// The options so far, unless a text is wrong; they point into these.
    pub(crate) fn ready(&self) -> Result<sys::weir_sampling_options> {
        let (bias, n_bias) = (self.bias.as_ptr(), self.bias.len() as u32);
        self.texts.check().map(|()| sys::weir_sampling_options { bias, n_bias, ..self.raw })
    }
}

/// Options of [`weir_session_generate`](sys::weir_session_generate) and
/// [`weir_session_begin`](sys::weir_session_begin). What is not set has its default.
#[derive(Clone)]
pub struct GenerateOptions {
    pub(crate) raw: sys::weir_generate_options,
    pub(crate) texts: Texts,
    pub(crate) stop: Vec<sys::weir_text>,
}
// SAFETY: its pointers are to what never changes, and is static or kept by an Arc.
unsafe impl Send for GenerateOptions {}
unsafe impl Sync for GenerateOptions {}
impl Default for GenerateOptions {
    fn default() -> Self {
        let raw = sys::weir_generate_options { ..Default::default() };
        GenerateOptions { raw, texts: Texts::default(), stop: Default::default(), }
    }
}
impl GenerateOptions {
    /// Control tokens appear in the events' text.
    pub fn special_text(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_GENERATE_SPECIAL_TEXT, is_set);
        self
    }
    /// Go on after tokens that end an answer.
    pub fn ignore_eos(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_GENERATE_IGNORE_EOS, is_set);
        self
    }
    /// After calls of tools, end before the first token that is no part of them, which is not appended, or with the
    /// token that ends the answer: [`WEIR_STOP_TOOL_CALL`](sys::WEIR_STOP_TOOL_CALL).
    /// [`WEIR_ERR_UNSUPPORTED`](sys::WEIR_ERR_UNSUPPORTED) where the model's way of writing calls is not known
    /// (`weir_chat_info.tool_format`).
    pub fn stop_at_call(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_GENERATE_STOP_AT_CALL, is_set);
        self
    }
    /// Most tokens of this call; 0 (default): as many as the context holds.
    pub fn max_tokens(mut self, max_tokens: u32) -> Self {
        self.raw.max_tokens = max_tokens;
        self
    }
    /// Events tell the log-probability of their token, and this many of the most probable tokens, 0..64. 0 (default):
    /// neither. A GPU sends these and sums, not all logits.
    pub fn n_top(mut self, n_top: u32) -> Self {
        self.raw.n_top = n_top;
        self
    }
    /// Before there are so many tokens, none is drawn that ends an answer
    /// ([`WEIR_TOKEN_END_OF_GENERATION`](sys::WEIR_TOKEN_END_OF_GENERATION)), also with
    /// [`WEIR_GENERATE_IGNORE_EOS`](sys::WEIR_GENERATE_IGNORE_EOS). Stop strings, `max_tokens` and the context end it
    /// all the same. Default 0.
    pub fn min_tokens(mut self, min_tokens: u32) -> Self {
        self.raw.min_tokens = min_tokens;
        self
    }
    /// After so many tokens of thought its end is appended as if it had been drawn: `thinking_close`, then the tag. 0
    /// (default): no limit. [`WEIR_ERR_UNSUPPORTED`](sys::WEIR_ERR_UNSUPPORTED) where the model has no tags of thoughts
    /// (`weir_chat_info.thought_end`).
    pub fn thinking_budget(mut self, thinking_budget: u32) -> Self {
        self.raw.thinking_budget = thinking_budget;
        self
    }
    /// Text that is appended before the tag where a thought is ended early, also by
    /// [`weir_session_finish_thinking`](sys::weir_session_finish_thinking): at most 1,024 bytes of UTF-8. Copied.
    /// Models often go on thinking aloud without one. None (default): none.
    /// [`WEIR_ERR_UNSUPPORTED`](sys::WEIR_ERR_UNSUPPORTED) as above.
    pub fn thinking_close(mut self, thinking_close: impl Into<Vec<u8>>) -> Self {
        self.raw.thinking_close = self.texts.keep("thinking_close", thinking_close);
        self
    }
    /// The options so far, unless a text is wrong; they point into these.
    pub(crate) fn ready(&self) -> Result<sys::weir_generate_options> {
        let (stop, n_stop) = (self.stop.as_ptr(), self.stop.len() as u32);
        self.texts.check().map(|()| sys::weir_generate_options { stop, n_stop, ..self.raw })
    }
}

/// Options of [`weir_session_prompt`](sys::weir_session_prompt) and
/// [`weir_session_prompt_tokens`](sys::weir_session_prompt_tokens). What is not set has its default.
#[derive(Clone)]
pub struct PromptOptions {
    pub(crate) raw: sys::weir_prompt_options,
    pub(crate) texts: Texts,
    pub(crate) more: Option<Arc<ChatOptions>>,
    pub(crate) progress: Option<Progress>,
}
// SAFETY: its pointers are to what never changes, and is static or kept by an Arc.
unsafe impl Send for PromptOptions {}
unsafe impl Sync for PromptOptions {}
impl Default for PromptOptions {
    fn default() -> Self {
        let raw = sys::weir_prompt_options { ..Default::default() };
        PromptOptions { raw, texts: Texts::default(), more: Default::default(), progress: Default::default(), }
    }
}
impl PromptOptions {
    /// Change nothing, only fill the report.
    pub fn measure(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_PROMPT_MEASURE, is_set);
        self
    }
    /// Where going back needs pages that are lost, forget the conversation, with its pins and unread page events, and
    /// read all of it again. Without this bit the session goes back without them, and the report counts them. Layers
    /// with a sliding window lose what has left it, under every policy; there this bit is for all who want no
    /// difference.
    pub fn exact(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_PROMPT_EXACT, is_set);
        self
    }
    /// [`weir_session_prompt`](sys::weir_session_prompt) only: where the conversation does not fit, leave out its
    /// oldest turns, but neither system messages at its beginning nor the last turn.
    pub fn drop_oldest(mut self, is_set: bool) -> Self {
        set_bits(&mut self.raw.flags, sys::WEIR_PROMPT_DROP_OLDEST, is_set);
        self
    }
    /// Positions to leave free for what follows. Default 0.
    pub fn reserve_tokens(mut self, reserve_tokens: u32) -> Self {
        self.raw.reserve_tokens = reserve_tokens;
        self
    }
    /// The options so far, unless a text is wrong; they point into these.
    pub(crate) fn ready(&self) -> Result<sys::weir_prompt_options> {
        let (progress, progress_user) = progress_of(self.progress.as_ref());
        self.texts.check().map(|()| sys::weir_prompt_options { progress, progress_user, ..self.raw })
    }
    /// Calls `progress` with how much is done, and how much there is. `Break` ends the call with
    /// [`Status::CANCELLED`]; a panic goes on in the caller.
    pub fn progress<F>(mut self, progress: F) -> Self
    where
        F: Fn(u64, u64) -> ControlFlow<()> + Send + Sync + 'static,
    {
        self.progress = Some(Arc::new(progress));
        self
    }
}

/// Facts about a model. Sizes are 0 for what a vocabulary-only file does not say.
#[derive(Clone, Copy, Debug)]
pub struct ModelInfo<'a>(sys::weir_model_info, PhantomData<&'a ()>);
// SAFETY: its texts live for 'a and never change.
unsafe impl Send for ModelInfo<'_> {}
unsafe impl Sync for ModelInfo<'_> {}
impl<'a> ModelInfo<'a> {
    /// # Safety
    /// What it points to lives for 'a.
    pub(crate) unsafe fn new(raw: sys::weir_model_info) -> Self {
        ModelInfo(raw, PhantomData)
    }
    /// Transformer layers.
    pub fn n_layers(&self) -> u32 {
        self.0.n_layers
    }
    /// Query heads of a layer.
    pub fn n_heads(&self) -> u32 {
        self.0.n_heads
    }
    /// KV heads of a layer.
    pub fn n_kv_heads(&self) -> u32 {
        self.0.n_kv_heads
    }
    /// Elements of a head.
    pub fn head_dim(&self) -> u32 {
        self.0.head_dim
    }
    /// Width of the residual stream.
    pub fn d_model(&self) -> u32 {
        self.0.d_model
    }
    /// Inner width of the feed-forward part.
    pub fn d_ff(&self) -> u32 {
        self.0.d_ff
    }
    /// Tokens of the vocabulary.
    pub fn vocab_size(&self) -> u32 {
        self.0.vocab_size
    }
    /// Positions the model was trained for.
    pub fn context_tokens(&self) -> u32 {
        self.0.context_tokens
    }
    /// Tensors in the file.
    pub fn n_tensors(&self) -> u32 {
        self.0.n_tensors
    }
    /// Weights in all tensors.
    pub fn n_params(&self) -> u64 {
        self.0.n_params
    }
    /// Bytes of all tensors in the file; used where they lie in it, mapped or copied.
    pub fn weights_bytes(&self) -> u64 {
        self.0.weights_bytes
    }
    /// Size of the file, or of all its parts together.
    pub fn file_bytes(&self) -> u64 {
        self.0.file_bytes
    }
    /// Hash of hyper-parameters, tensor table and vocabulary; 0 with
    /// [`WEIR_MODEL_VOCAB_ONLY`](sys::WEIR_MODEL_VOCAB_ONLY).
    pub fn fingerprint(&self) -> u64 {
        self.0.fingerprint
    }
    /// general.architecture: "llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3", "granite", "olmo2",
    /// "glm4", "qwen3vl", "mistral3", "qwen35", "lfm2", "`nemotron_h`", "granitehybrid", "qwen2moe", "qwen3moe",
    /// "qwen3vlmoe", "gpt-oss", "glm4moe", "granitemoe", "qwen35moe", "qwen3next", "lfm2moe" or "`nemotron_h_moe`".
    pub fn architecture(&self) -> Cow<'a, str> {
        unsafe { text(self.0.architecture) }
    }
    /// general.name as one line of UTF-8, or "".
    pub fn name(&self) -> Cow<'a, str> {
        unsafe { text(self.0.name) }
    }
    /// Type of most weights, such as "`q8_0`".
    pub fn weight_type(&self) -> Cow<'a, str> {
        unsafe { text(self.0.weight_type) }
    }
    /// "jinja" when the file has a chat template, which is run; "" when there is none.
    pub fn chat_template(&self) -> Cow<'a, str> {
        unsafe { text(self.0.chat_template) }
    }
    /// Tokenizer kind and pre-tokenizer, such as "gpt2/llama-bpe".
    pub fn tokenizer(&self) -> Cow<'a, str> {
        unsafe { text(self.0.tokenizer) }
    }
    /// Bytes of the file in memory of the allocator hooks: all of them with [`WEIR_MODEL_COPY`](sys::WEIR_MODEL_COPY),
    /// 0 when it is mapped.
    pub fn copied_bytes(&self) -> u64 {
        self.0.copied_bytes
    }
    /// Files that the model is in, at least 1; see [`weir_model_open`](sys::weir_model_open).
    pub fn n_parts(&self) -> u32 {
        self.0.n_parts
    }
}

/// One tensor of a model.
#[derive(Clone, Copy, Debug)]
pub struct TensorInfo<'a>(sys::weir_tensor_info, PhantomData<&'a ()>);
// SAFETY: its texts live for 'a and never change.
unsafe impl Send for TensorInfo<'_> {}
unsafe impl Sync for TensorInfo<'_> {}
impl<'a> TensorInfo<'a> {
    /// # Safety
    /// What it points to lives for 'a.
    pub(crate) unsafe fn new(raw: sys::weir_tensor_info) -> Self {
        TensorInfo(raw, PhantomData)
    }
    /// 1..4.
    pub fn n_dims(&self) -> u32 {
        self.0.n_dims
    }
    /// Slowest axis first; unused ones are 1.
    pub fn dims(&self) -> [u64; 4] {
        self.0.dims
    }
    /// Size in the file.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }
    /// Where its bytes start in the file.
    pub fn file_offset(&self) -> u64 {
        self.0.file_offset
    }
    /// Its name in the file.
    pub fn name(&self) -> Cow<'a, str> {
        unsafe { text(self.0.name) }
    }
    /// Such as "`q8_0`".
    pub fn r#type(&self) -> Cow<'a, str> {
        unsafe { text(self.0.r#type) }
    }
    /// Which of the model's files it is in, 0 .. `n_parts` - 1.
    pub fn part(&self) -> u32 {
        self.0.part
    }
}

/// One token of a vocabulary.
#[derive(Clone, Copy, Debug)]
pub struct TokenInfo<'a>(sys::weir_token_info, PhantomData<&'a ()>);
// SAFETY: its texts live for 'a and never change.
unsafe impl Send for TokenInfo<'_> {}
unsafe impl Sync for TokenInfo<'_> {}
impl<'a> TokenInfo<'a> {
    /// # Safety
    /// What it points to lives for 'a.
    pub(crate) unsafe fn new(raw: sys::weir_token_info) -> Self {
        TokenInfo(raw, PhantomData)
    }
    /// `WEIR_TOKEN_*`.
    pub fn flags(&self) -> TokenFlags {
        TokenFlags(self.0.flags)
    }
    /// As stored in the file, UTF-8.
    pub fn text(&self) -> &'a [u8] {
        unsafe { slice(self.0.text.cast(), self.0.text_bytes) }
    }
    /// Score of SentencePiece vocabularies, else 0.
    pub fn score(&self) -> f32 {
        self.0.score
    }
    /// What the token stands for in running text, a space where the text above has a sign for one. Any bytes, perhaps
    /// part of a UTF-8 sequence. Of control and unknown tokens their text.
    pub fn bytes(&self) -> &'a [u8] {
        unsafe { slice(self.0.bytes.cast(), self.0.n_bytes) }
    }
}

/// What a model's chat template can do, and how the parts of its answers are told apart.
#[derive(Clone, Copy, Debug)]
pub struct ChatInfo<'a>(sys::weir_chat_info, PhantomData<&'a ()>);
// SAFETY: its texts live for 'a and never change.
unsafe impl Send for ChatInfo<'_> {}
unsafe impl Sync for ChatInfo<'_> {}
impl<'a> ChatInfo<'a> {
    /// # Safety
    /// What it points to lives for 'a.
    pub(crate) unsafe fn new(raw: sys::weir_chat_info) -> Self {
        ChatInfo(raw, PhantomData)
    }
    /// `WEIR_CHAT_CAN_*`.
    pub fn can(&self) -> ChatAbilities {
        ChatAbilities(self.0.can)
    }
    /// Text that begins a thought, "" when the model has no tags.
    pub fn thought_begin(&self) -> Cow<'a, str> {
        unsafe { text(self.0.thought_begin) }
    }
    /// Text that ends it, "" likewise.
    pub fn thought_end(&self) -> Cow<'a, str> {
        unsafe { text(self.0.thought_end) }
    }
    /// Name of the model's way of writing calls of tools, "hermes", "llama3", "mistral", "harmony" and so on, or ""
    /// when none is known.
    pub fn tool_format(&self) -> Cow<'a, str> {
        unsafe { text(self.0.tool_format) }
    }
}

/// A device of this machine, see [`weir_runtime_devices`](sys::weir_runtime_devices).
#[derive(Clone, Copy, Debug)]
pub struct DeviceInfo<'a>(sys::weir_device_info, PhantomData<&'a ()>);
// SAFETY: its texts live for 'a and never change.
unsafe impl Send for DeviceInfo<'_> {}
unsafe impl Sync for DeviceInfo<'_> {}
impl<'a> DeviceInfo<'a> {
    /// # Safety
    /// What it points to lives for 'a.
    pub(crate) unsafe fn new(raw: sys::weir_device_info) -> Self {
        DeviceInfo(raw, PhantomData)
    }
    /// Among the devices of its backend; `weir_runtime_options.vulkan_device` takes it.
    pub fn index(&self) -> u32 {
        self.0.index
    }
    /// `WEIR_DEVICE_*`, never [`WEIR_DEVICE_AUTO`](sys::WEIR_DEVICE_AUTO): which backend has it. A GPU that two of them
    /// have is listed twice.
    pub fn backend(&self) -> DeviceType {
        DeviceType(self.0.backend)
    }
    /// `WEIR_DEVICE_KIND_*`.
    pub fn kind(&self) -> DeviceKind {
        DeviceKind(self.0.kind)
    }
    /// 1: sessions of this runtime may run on it, as far as can be told without opening it. 0: not, see `why_not`.
    pub fn is_usable(&self) -> bool {
        self.0.is_usable != 0
    }
    /// All of its memory; of a processor the machine's, or what the container may use of it.
    pub fn memory_bytes(&self) -> u64 {
        self.0.memory_bytes
    }
    /// One line of UTF-8.
    pub fn name(&self) -> Cow<'_, str> {
        unsafe { text(self.0.name.as_ptr()) }
    }
    /// Likewise: the driver and its version; of the CPU the instruction set in use.
    pub fn driver(&self) -> Cow<'_, str> {
        unsafe { text(self.0.driver.as_ptr()) }
    }
    /// Likewise: what it lacks; "" if it is usable.
    pub fn why_not(&self) -> Cow<'_, str> {
        unsafe { text(self.0.why_not.as_ptr()) }
    }
}

/// One generated token, for the callback of [`weir_session_generate`](sys::weir_session_generate).
#[derive(Clone, Copy, Debug)]
pub struct TokenEvent<'a>(sys::weir_token_event, PhantomData<&'a ()>);
// SAFETY: its texts live for 'a and never change.
unsafe impl Send for TokenEvent<'_> {}
unsafe impl Sync for TokenEvent<'_> {}
impl<'a> TokenEvent<'a> {
    /// # Safety
    /// What it points to lives for 'a.
    pub(crate) unsafe fn new(raw: sys::weir_token_event) -> Self {
        TokenEvent(raw, PhantomData)
    }
    /// The token; -1 in a last event that only brings text which no token can complete any more.
    pub fn token(&self) -> Option<Token> {
        (self.0.token >= 0).then_some(self.0.token as Token)
    }
    /// 0 for the first token of this call.
    pub fn index(&self) -> u32 {
        self.0.index
    }
    /// Positions in the conversation before this token is appended.
    pub fn n_tokens(&self) -> u32 {
        self.0.n_tokens
    }
    /// Text that is now complete, whole UTF-8 sequences, perhaps empty.
    pub fn text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(unsafe { slice(self.0.text.cast(), self.0.text_bytes) })
    }
    /// As of [`weir_event`](sys::weir_event).
    pub fn logprob(&self) -> f32 {
        self.0.logprob
    }
    /// As of [`weir_event`](sys::weir_event).
    pub fn top(&self) -> &'a [LogProb] {
        unsafe { slice(self.0.top, self.0.n_top.into()) }
    }
}

/// One message of a conversation. It may grow in later versions; callers of
/// [`weir_chat_tokenize`](sys::weir_chat_tokenize) and [`weir_session_prompt`](sys::weir_session_prompt) say how large
/// theirs are (`weir_chat_options.message_bytes`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Message {
    /// "system", "user" or "assistant". Also "tool" and "developer" where the template has words for them.
    pub role: String,
    /// UTF-8. None with `content_bytes` 0: empty.
    pub content: String,
    /// What the model thought before an answer, UTF-8 without tags; None: nothing. The template decides whether it is
    /// kept: most leave out those of earlier turns.
    pub thought: Option<String>,
    /// The calls in an answer, JSON, a list of objects with "name", "arguments" (an object) and perhaps "id", or as in
    /// OpenAI's API, with these two in "function". None: none.
    pub tool_calls_json: Option<String>,
    /// The call that a tool's result answers; None: not said.
    pub tool_call_id: Option<String>,
    /// The tool that a result is of; else who speaks; None: not said.
    pub name: Option<String>,
}
impl Message {
    /// # Safety
    /// What it points to is there.
    pub(crate) unsafe fn from_raw(raw: &sys::weir_chat_message) -> Self {
        Message {
            role: unsafe { text(raw.role) }.into_owned(),
            content: unsafe { string(raw.content, raw.content_bytes) },
            thought: (!raw.thought.is_null()).then(|| unsafe { string(raw.thought, raw.thought_bytes) }),
            tool_calls_json: (!raw.tool_calls_json.is_null()).then(|| unsafe {
                text(raw.tool_calls_json)
            }.into_owned()),
            tool_call_id: (!raw.tool_call_id.is_null()).then(|| unsafe { text(raw.tool_call_id) }.into_owned()),
            name: (!raw.name.is_null()).then(|| unsafe { text(raw.name) }.into_owned()),
        }
    }
    pub(crate) fn to_raw(&self, texts: &mut Texts) -> sys::weir_chat_message {
        sys::weir_chat_message {
            role: texts.keep("role", &*self.role),
            content: self.content.as_ptr().cast(),
            content_bytes: self.content.len() as u64,
            thought: self.thought.as_ref().map_or(ptr::null(), |bytes| bytes.as_ptr().cast()),
            thought_bytes: self.thought.as_ref().map_or(0, |bytes| bytes.len() as u64),
            tool_calls_json: texts.keep_some("tool_calls_json", self.tool_calls_json.as_ref()),
            tool_call_id: texts.keep_some("tool_call_id", self.tool_call_id.as_ref()),
            name: texts.keep_some("name", self.name.as_ref()),
        }
    }
}

/// One event of an answer, from [`weir_session_next`](sys::weir_session_next).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Event {
    /// `WEIR_EVENT_*`.
    pub kind: EventKind,
    /// The token; of an end the one that ended the answer, which is not appended; else -1.
    pub token: Option<Token>,
    /// Number of the token in this answer, from 0; of other events how many there were.
    pub index: u32,
    /// Positions in the conversation, with this token.
    pub n_tokens: u32,
    /// Why the answer ended: `WEIR_STOP_*`; [`WEIR_STOP_NONE`](sys::WEIR_STOP_NONE) of other events.
    pub stop: Stop,
    /// Which of the texts of [`WEIR_STOP_STRING`](sys::WEIR_STOP_STRING) it was; otherwise -1.
    pub stop_index: Option<u32>,
    /// `WEIR_SEGMENT_*`: what the text is part of, or without text what the token is.
    pub segment: Segment,
    text: Text,
    /// That of [`weir_logprob`](sys::weir_logprob). NaN of other events and where `n_top` of the options is 0.
    pub logprob: f32,
    /// \[`n_top`\], the most probable first, of equals the lower id; the token itself need not be among them. None
    /// where `n_top` is 0.
    pub top: Vec<LogProb>,
}
impl Event {
    /// # Safety
    /// What it points to is there.
    pub(crate) unsafe fn from_raw(raw: &sys::weir_event) -> Self {
        Event {
            kind: EventKind(raw.kind),
            token: (raw.token >= 0).then_some(raw.token as Token),
            index: raw.index,
            n_tokens: raw.n_tokens,
            stop: Stop(raw.stop),
            stop_index: (raw.stop_index >= 0).then_some(raw.stop_index as u32),
            segment: Segment(raw.segment),
            text: Text::new(unsafe { slice(raw.text.cast(), raw.text_bytes) }),
            logprob: raw.logprob,
            top: unsafe { slice(raw.top, raw.n_top.into()) }.to_vec(),
        }
    }
    /// Whole UTF-8 sequences, perhaps empty.
    pub fn text(&self) -> &str {
        self.text.get()
    }
}

/// Worker threads, backends and hooks. One per process is usual; several are independent of each other.
///
/// A clone is the same runtime. What is made from it, or uses it, keeps it alive.
#[derive(Clone)]
pub struct Runtime(pub(crate) Arc<Handle<sys::weir_runtime, Arc<Hooks>>>);
// SAFETY: any thread may call its functions, at any time.
unsafe impl Shared for sys::weir_runtime {}
impl Runtime {
    pub(crate) fn made<F>(keep: Arc<Hooks>, create: F) -> Result<Self>
    where
        F: FnOnce(*mut *mut sys::weir_runtime) -> sys::weir_status,
    {
        Handle::new(keep, |raw| unsafe { sys::weir_runtime_destroy(raw) }, create)
            .map(|handle| Runtime(Arc::new(handle)))
    }
}

/// Weights, hyper-parameters and tokenizer of one GGUF file. Immutable.
///
/// A clone is the same model. What is made from it, or uses it, keeps it alive.
#[derive(Clone)]
pub struct Model(pub(crate) Arc<Handle<sys::weir_model, Runtime>>);
// SAFETY: any thread may call its functions, at any time.
unsafe impl Shared for sys::weir_model {}
impl Model {
    pub(crate) fn made<F>(keep: Runtime, create: F) -> Result<Self>
    where
        F: FnOnce(*mut *mut sys::weir_model) -> sys::weir_status,
    {
        Handle::new(keep, |raw| unsafe { sys::weir_model_close(raw) }, create).map(|handle| Model(Arc::new(handle)))
    }
}

/// A compiled constraint: for any number of sessions of its model, in any number of threads.
///
/// A clone is the same constraint. What is made from it, or uses it, keeps it alive.
#[derive(Clone)]
pub struct Constraint(pub(crate) Arc<Handle<sys::weir_constraint, Model>>);
// SAFETY: any thread may call its functions, at any time.
unsafe impl Shared for sys::weir_constraint {}
impl Constraint {
    pub(crate) fn made<F>(keep: Model, create: F) -> Result<Self>
    where
        F: FnOnce(*mut *mut sys::weir_constraint) -> sys::weir_status,
    {
        Handle::new(keep, |raw| unsafe { sys::weir_constraint_destroy(raw) }, create)
            .map(|handle| Constraint(Arc::new(handle)))
    }
}

/// Stops calls, and outlives what it stops.
///
/// A clone is the same cancel. What is made from it, or uses it, keeps it alive.
#[derive(Clone)]
pub struct Cancel(pub(crate) Arc<Handle<sys::weir_cancel, ()>>);
// SAFETY: any thread may call its functions, at any time.
unsafe impl Shared for sys::weir_cancel {}
impl Cancel {
    pub(crate) fn made<F>(keep: (), create: F) -> Result<Self>
    where
        F: FnOnce(*mut *mut sys::weir_cancel) -> sys::weir_status,
    {
        Handle::new(keep, |raw| unsafe { sys::weir_cancel_release(raw) }, create).map(|handle| Cancel(Arc::new(handle)))
    }
}

impl Runtime {
    /// Memory that the runtime and everything made from it have allocated, on the host and on devices. Mapped model
    /// files are not included, copied ones are. See [`weir_runtime_memory`](sys::weir_runtime_memory).
    pub fn memory(&self) -> Result<RuntimeMemory> {
        get(|out| unsafe { sys::weir_runtime_memory(self.0.raw, out) })
    }
    /// Number of threads that compute, the caller's included. See
    /// [`weir_runtime_thread_count`](sys::weir_runtime_thread_count).
    pub fn thread_count(&self) -> u32 {
        unsafe { sys::weir_runtime_thread_count(self.0.raw) }
    }
    /// Name of the CPU instruction set in use, such as "`AVX3_DL`" or "NEON". See
    /// [`weir_runtime_cpu_target`](sys::weir_runtime_cpu_target).
    pub fn cpu_target(&self) -> Cow<'static, str> {
        unsafe { text(sys::weir_runtime_cpu_target(self.0.raw)) }
    }
    /// The devices of this machine, usable or not: the CPU, then those of CUDA and of Vulkan, by index. Opens none. The
    /// modules of both backends are loaded; the devices of one that is missing or finds no driver are not in the list,
    /// and an information line of the log says why. See [`weir_runtime_devices`](sys::weir_runtime_devices).
    pub fn devices(&self) -> Result<Vec<DeviceInfo<'static>>> {
        let devices = list(8, |out: *mut sys::weir_device_info, room, n| unsafe {
            out.write(Default::default());
            sys::weir_runtime_devices(self.0.raw, out, room, n)
        })?;
        Ok(devices.into_iter().map(|device| unsafe { DeviceInfo::new(device) }).collect())
    }
    /// Render a chat template, given as text, with any variables: to look at, and to try out templates. See
    /// [`weir_template_render`](sys::weir_template_render).
    pub fn render_template(
        &self,
        template_text: impl AsRef<[u8]>,
        variables_json: impl AsRef<[u8]>,
        unix_time: i64,
    ) -> Result<String> {
        let template_text = template_text.as_ref();
        let variables_json = variables_json.as_ref();
        list(1024, |out: *mut u8, room, n| unsafe {
            sys::weir_template_render(self.0.raw, template_text.as_ptr().cast(), template_text.len() as u64,
                variables_json.as_ptr().cast(), variables_json.len() as u64, unix_time, out.cast(), room, n)
        }).map(utf8)
    }
    /// Name of policy number `index`, such as "raas": the values of `weir_session_options.policy`. See
    /// [`weir_policy_name`](sys::weir_policy_name).
    pub fn policies(&self) -> Vec<Cow<'static, str>> {
        names(|index| unsafe { sys::weir_policy_name(index) })
    }
    /// Name of preset number `index`, such as "reason-fixed": the names that
    /// [`weir_session_options_preset`](sys::weir_session_options_preset) takes. See
    /// [`weir_preset_name`](sys::weir_preset_name).
    pub fn presets(&self) -> Vec<Cow<'static, str>> {
        names(|index| unsafe { sys::weir_preset_name(index) })
    }
    /// Name of weight type number `index`, such as "`q8_0`": the types of tensors that this build computes with. See
    /// [`weir_weight_type_name`](sys::weir_weight_type_name).
    pub fn weight_types(&self) -> Vec<Cow<'static, str>> {
        names(|index| unsafe { sys::weir_weight_type_name(index) })
    }
}

impl Cancel {
    /// Stop the calls of the sessions that look at it, as [`weir_session_cancel`](sys::weir_session_cancel) stops them,
    /// those that run and all later ones until [`weir_cancel_clear`](sys::weir_cancel_clear): a call that ends because
    /// of it does not clear it, as it may serve several sessions. See [`weir_cancel_set`](sys::weir_cancel_set).
    pub fn set(&self) {
        unsafe { sys::weir_cancel_set(self.0.raw) }
    }
    /// Let the calls of these sessions go on. As with [`weir_session_clear_cancel`](sys::weir_session_clear_cancel),
    /// whoever takes the clicks on a Stop button calls it when a new turn begins, before the thread that computes gets
    /// the turn. See [`weir_cancel_clear`](sys::weir_cancel_clear).
    pub fn clear(&self) {
        unsafe { sys::weir_cancel_clear(self.0.raw) }
    }
}

impl Model {
    /// Facts about the model. See [`weir_model_get_info`](sys::weir_model_get_info).
    pub fn info(&self) -> Result<ModelInfo<'_>> {
        get(|out| unsafe { sys::weir_model_get_info(self.0.raw, out) }).map(|raw| unsafe { ModelInfo::new(raw) })
    }
    /// Describe tensor number `index` in file order. See [`weir_model_tensor_info`](sys::weir_model_tensor_info).
    pub fn tensor(&self, index: u32) -> Result<TensorInfo<'_>> {
        get(|out| unsafe { sys::weir_model_tensor_info(self.0.raw, index, out) }).map(|raw| unsafe {
            TensorInfo::new(raw)
        })
    }
    /// Number of metadata keys in the file. See [`weir_model_metadata_count`](sys::weir_model_metadata_count).
    pub fn metadata_count(&self) -> u32 {
        unsafe { sys::weir_model_metadata_count(self.0.raw) }
    }
    /// Turn text into tokens, as [`weir_tokenize`](sys::weir_tokenize) does, and tell how far it is. See
    /// [`weir_tokenize_with`](sys::weir_tokenize_with).
    pub fn tokenize(&self, text: impl AsRef<[u8]>, options: &TokenizeOptions) -> Result<Vec<Token>> {
        let text = text.as_ref();
        let options = options.ready()?;
        list(text.len() + 2, |out, room, n| unsafe {
            sys::weir_tokenize_with(self.0.raw, text.as_ptr().cast(), text.len() as u64, &options, out, room, n)
        })
    }
    /// Turn tokens into the bytes they stand for. See [`weir_detokenize`](sys::weir_detokenize).
    pub fn detokenize(&self, tokens: &[Token], flags: DetokenizeFlags) -> Result<Vec<u8>> {
        list(8 * tokens.len(), |out: *mut u8, room, n| unsafe {
            sys::weir_detokenize(self.0.raw, tokens.as_ptr(), tokens.len() as u64, flags.0, out.cast(), room, n)
        })
    }
    /// Describe one token. See [`weir_token_get_info`](sys::weir_token_get_info).
    pub fn token(&self, token: Token) -> Result<TokenInfo<'_>> {
        get(|out| unsafe { sys::weir_token_get_info(self.0.raw, token, out) }).map(|raw| unsafe { TokenInfo::new(raw) })
    }
    /// The special tokens of a model. See [`weir_model_special_tokens`](sys::weir_model_special_tokens).
    pub fn special_tokens(&self) -> Result<SpecialTokens> {
        get(|out| unsafe { sys::weir_model_special_tokens(self.0.raw, out) })
    }
    /// What the chat template of a model can do. Tags that it does not have are looked for in the vocabulary. See
    /// [`weir_model_chat_info`](sys::weir_model_chat_info).
    pub fn chat_info(&self) -> Result<ChatInfo<'_>> {
        get(|out| unsafe { sys::weir_model_chat_info(self.0.raw, out) }).map(|raw| unsafe { ChatInfo::new(raw) })
    }
    /// Turn a conversation into tokens as the chat template of the model's file does: what to prefill before an answer.
    /// See [`weir_chat_tokenize`](sys::weir_chat_tokenize).
    pub fn chat_tokenize(&self, messages: &[Message], options: &ChatOptions) -> Result<Vec<Token>> {
        let (messages, _texts) = raw_messages(messages)?;
        let options = options.ready()?;
        list(1024, |out, room, n| unsafe {
            sys::weir_chat_tokenize(self.0.raw, messages.as_ptr(), messages.len() as u64, &options, out, room, n)
        })
    }
    /// Render a conversation as the chat template of the model's file does, as text to look at. See
    /// [`weir_chat_render_with`](sys::weir_chat_render_with).
    pub fn chat_render(&self, messages: &[Message], options: &ChatOptions) -> Result<String> {
        let (messages, _texts) = raw_messages(messages)?;
        let options = options.ready()?;
        list(1024, |out: *mut u8, room, n| unsafe {
            sys::weir_chat_render_with(self.0.raw, messages.as_ptr(), messages.len() as u64, &options, out.cast(),
                room, n)
        }).map(utf8)
    }
    /// Compute the exact number of bytes that a session with these options takes. Allocates nothing from the hooks. See
    /// [`weir_plan`](sys::weir_plan).
    pub fn plan(&self, options: &SessionOptions) -> Result<Plan> {
        let options = options.ready()?;
        get(|out| unsafe { sys::weir_plan(self.0.raw, &options, out) })
    }
    /// Choose what is 0 of `context_tokens`, the budget and `spill_budget_bytes`, so that the plan takes at most
    /// `bytes`; what is set stays. See [`weir_session_options_fit`](sys::weir_session_options_fit).
    pub fn fit(&self, bytes: u64, mut options: SessionOptions) -> Result<SessionOptions> {
        options.raw = options.ready()?;
        check(unsafe { sys::weir_session_options_fit(self.0.raw, bytes, &mut options.raw) }).map(|()| options)
    }
    /// Compile a constraint. See [`weir_constraint_create`](sys::weir_constraint_create).
    pub fn constraint(&self, kind: ConstraintKind, text: impl AsRef<[u8]>) -> Result<Constraint> {
        let text = text.as_ref();
        Constraint::made(self.clone(), |out| unsafe {
            sys::weir_constraint_create(self.0.raw, kind.0, text.as_ptr().cast(), text.len() as u64, out)
        })
    }
}

impl Detokenizer {
    /// Feed one token and get the text that is now complete, always whole UTF-8 sequences, perhaps none. Allocates
    /// nothing. See [`weir_detokenizer_push`](sys::weir_detokenizer_push).
    pub fn push(&mut self, token: Token) -> Result<&str> {
        let (mut first, mut n) = (ptr::null(), 0);
        check(unsafe { sys::weir_detokenizer_push(self.0.raw, token, &mut first, &mut n) })?;
        // SAFETY: the view stays until a call that changes the object.
        Ok(unsafe { std::str::from_utf8_unchecked(slice(first.cast(), n)) })
    }
    /// End the text: what is still incomplete comes out as U+FFFD, and the detokenizer starts anew. See
    /// [`weir_detokenizer_flush`](sys::weir_detokenizer_flush).
    pub fn flush(&mut self) -> Result<&str> {
        let (mut first, mut n) = (ptr::null(), 0);
        check(unsafe { sys::weir_detokenizer_flush(self.0.raw, &mut first, &mut n) })?;
        // SAFETY: the view stays until a call that changes the object.
        Ok(unsafe { std::str::from_utf8_unchecked(slice(first.cast(), n)) })
    }
}

impl Session {
    /// Forget the conversation: all pages are free, position 0, the sampler's random state starts anew, a pending
    /// cancel is cleared. Sampling options and counters stay. See [`weir_session_reset`](sys::weir_session_reset).
    pub fn reset(&mut self) -> Result<()> {
        check(unsafe { sys::weir_session_reset(self.0.raw) })
    }
    /// Append prompt tokens, many at a time, and compute the logits after the last. See
    /// [`weir_session_prefill`](sys::weir_session_prefill).
    pub fn prefill(&mut self, tokens: &[Token], progress: Option<&Progress>) -> Result<()> {
        let (progress, progress_user) = progress_of(progress);
        check(unsafe {
            sys::weir_session_prefill(self.0.raw, tokens.as_ptr(), tokens.len() as u64, progress, progress_user)
        })
    }
    /// Go back to the first `n_tokens` of the conversation, as if the tokens after them had never come. See
    /// [`weir_session_rewind`](sys::weir_session_rewind).
    pub fn rewind(&mut self, n_tokens: u32, flags: RewindFlags) -> Result<()> {
        check(unsafe { sys::weir_session_rewind(self.0.raw, n_tokens, flags.0) })
    }
    /// Make the conversation exactly these tokens: keep the longest common beginning, go back to it, read the rest. See
    /// [`weir_session_prompt_tokens`](sys::weir_session_prompt_tokens).
    pub fn prompt_tokens(&mut self, tokens: &[Token], options: &PromptOptions) -> Result<PromptReport> {
        let options = options.ready()?;
        get(|out| unsafe {
            sys::weir_session_prompt_tokens(self.0.raw, tokens.as_ptr(), tokens.len() as u64, &options, out)
        })
    }
    /// Append one token as a decode step and compute the logits after it. Allocates nothing. See
    /// [`weir_session_step`](sys::weir_session_step).
    pub fn step(&mut self, token: Token) -> Result<()> {
        check(unsafe { sys::weir_session_step(self.0.raw, token) })
    }
    /// The logits after the last token. See [`weir_session_logits`](sys::weir_session_logits).
    pub fn logits(&self) -> Result<&[f32]> {
        let (mut first, mut n) = (ptr::null(), 0);
        check(unsafe { sys::weir_session_logits(self.0.raw, &mut first, &mut n) })?;
        // SAFETY: the view stays until a call that changes the object.
        Ok(unsafe { slice(first, n.into()) })
    }
    /// The tokens of the conversation, in order: what was prefilled, and what was appended by steps. See
    /// [`weir_session_tokens`](sys::weir_session_tokens).
    pub fn tokens(&self) -> Result<&[Token]> {
        let (mut first, mut n) = (ptr::null(), 0);
        check(unsafe { sys::weir_session_tokens(self.0.raw, &mut first, &mut n) })?;
        // SAFETY: the view stays until a call that changes the object.
        Ok(unsafe { slice(first, n.into()) })
    }
    /// Set how tokens are drawn, and restart the random state from the seed. The recent tokens that the penalties look
    /// at are kept. See [`weir_session_set_sampling`](sys::weir_session_set_sampling).
    pub fn set_sampling(&mut self, options: &SamplingOptions) -> Result<()> {
        let options = options.ready()?;
        check(unsafe { sys::weir_session_set_sampling(self.0.raw, &options) })
    }
    /// Draw the next token from the logits; it is not appended. Allocates nothing. See
    /// [`weir_session_sample`](sys::weir_session_sample).
    pub fn sample(&mut self) -> Result<Token> {
        get(|out| unsafe { sys::weir_session_sample(self.0.raw, out) })
    }
    /// Begin an answer that is then pulled, one event a call, by [`weir_session_next`](sys::weir_session_next). An
    /// answer that was begun before ends. See [`weir_session_begin`](sys::weir_session_begin).
    pub(crate) fn begin_answer(&mut self, options: &GenerateOptions) -> Result<()> {
        let options = options.ready()?;
        check(unsafe { sys::weir_session_begin(self.0.raw, &options) })
    }
    /// The next event of the answer that [`weir_session_begin`](sys::weir_session_begin) began. It computes at most one
    /// step and allocates nothing. See [`weir_session_next`](sys::weir_session_next).
    pub fn next_event(&mut self) -> Result<Event> {
        get(|out| unsafe { sys::weir_session_next(self.0.raw, out) }).map(|raw| unsafe { Event::from_raw(&raw) })
    }
    /// End the thought that is open: the next token of the answer begins its end, as
    /// `weir_generate_options.thinking_budget` does. Nothing happens where no thought is open when that token comes, or
    /// no answer has begun. See [`weir_session_finish_thinking`](sys::weir_session_finish_thinking).
    pub fn finish_thinking(&self) {
        unsafe { sys::weir_session_finish_thinking(self.0.raw) }
    }
    /// Pin positions: the pages that hold any of \[first, end) never leave, and every step attends them. See
    /// [`weir_session_pin`](sys::weir_session_pin).
    pub fn pin(&mut self, first: u32, end: u32) -> Result<()> {
        check(unsafe { sys::weir_session_pin(self.0.raw, first, end) })
    }
    /// Unpin all pages that hold any of \[first, end). Takes back the pins of
    /// [`weir_session_pin`](sys::weir_session_pin) and also those that policies give to prompts, so that old turns may
    /// leave. See [`weir_session_unpin`](sys::weir_session_unpin).
    pub fn unpin(&mut self, first: u32, end: u32) -> Result<()> {
        check(unsafe { sys::weir_session_unpin(self.0.raw, first, end) })
    }
    /// Let answers of a session be texts of a constraint, from their first token on. Each answer begins it anew:
    /// [`weir_session_begin`](sys::weir_session_begin) and [`weir_session_generate`](sys::weir_session_generate); for
    /// [`weir_session_sample`](sys::weir_session_sample) a prefill, a prompt or this call does. See
    /// [`weir_session_set_constraint`](sys::weir_session_set_constraint).
    pub fn set_constraint(&mut self, constraint: Option<&Constraint>, segments: u32) -> Result<()> {
        check(unsafe {
            sys::weir_session_set_constraint(self.0.raw, constraint.map_or(ptr::null_mut(),
                |constraint| constraint.0.raw), segments)
        })
    }
    /// Let the session's calls look at `cancel` as well as at [`weir_session_cancel`](sys::weir_session_cancel).
    /// [`weir_session_reset`](sys::weir_session_reset) and [`weir_session_restore`](sys::weir_session_restore) do not
    /// clear it, and a fork does not look at it. See [`weir_session_set_cancel`](sys::weir_session_set_cancel).
    pub fn set_cancel(&mut self, cancel: Option<&Cancel>) -> Result<()> {
        check(unsafe {
            sys::weir_session_set_cancel(self.0.raw, cancel.map_or(ptr::null_mut(), |cancel| cancel.0.raw))
        })
    }
    /// Where the conversation's pages are, for a picture of it: page i holds the positions from 16 \* i on. See
    /// [`weir_session_pages`](sys::weir_session_pages).
    pub fn pages(&self) -> Result<Vec<PageState>> {
        list(1024, |out, room, n| unsafe { sys::weir_session_pages(self.0.raw, out, room, n) })
    }
    /// Counters of the session. See [`weir_session_get_stats`](sys::weir_session_get_stats).
    pub fn stats(&self) -> Result<Stats> {
        get(|out| unsafe { sys::weir_session_get_stats(self.0.raw, out) })
    }
    /// Memory of the session. See [`weir_session_memory`](sys::weir_session_memory).
    pub fn memory(&self) -> Result<SessionMemory> {
        get(|out| unsafe { sys::weir_session_memory(self.0.raw, out) })
    }
}
