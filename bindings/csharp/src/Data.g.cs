// Enums, results and options. Longer than 600 lines because generate.py writes it from include/weir.
using System;
using System.Collections.Generic;

namespace Weir
{
    /// <summary>Values of enum weir_status_code.</summary>
    public enum Status : int
    {
        /// <summary>WEIR_OK</summary>
        Ok = 0,
        /// <summary>An argument is null, out of range or contradicts another.</summary>
        InvalidArg = -1,
        /// <summary>An allocator refused, or the machine has less than one allocation asks for.</summary>
        OutOfMemory = -2,
        /// <summary>A file could not be opened, read or mapped.</summary>
        Io = -3,
        /// <summary>A file or a text breaks its format.</summary>
        Format = -4,
        /// <summary>Well-formed, but this build cannot do it.</summary>
        Unsupported = -5,
        /// <summary>No policy, option, key or token of that name.</summary>
        NotFound = -6,
        /// <summary>The position limit of the session is reached.</summary>
        ContextFull = -7,
        /// <summary>The KV budget is too small for the request; the message says what fits.</summary>
        Budget = -8,
        /// <summary>Another thread is inside this session.</summary>
        Busy = -9,
        /// <summary>Stopped by weir_session_cancel or by a callback.</summary>
        Cancelled = -10,
        /// <summary>Not possible in the object's present state (no logits yet, for example).</summary>
        State = -11,
        /// <summary>The caller's buffer is too small; the needed size was stored.</summary>
        BufferTooSmall = -12,
        /// <summary>The device failed; the session is unusable, destroy it.</summary>
        DeviceLost = -13,
        /// <summary>A defect of Weir; please report it with the message.</summary>
        Internal = -14,
    }

    /// <summary>Kinds of memory that the allocator hooks are asked for.</summary>
    public enum MemoryKind : int
    {
        /// <summary>Ordinary memory of the process.</summary>
        Host = 0,
        /// <summary>Memory of an accelerator, which only the device hooks are asked for; the pointer is a device
        /// pointer.</summary>
        Device = 1,
    }

    /// <summary>Severity of a log line.</summary>
    public enum LogLevel : int
    {
        /// <summary>WEIR_LOG_ERROR</summary>
        Error = 0,
        /// <summary>WEIR_LOG_WARNING</summary>
        Warning = 1,
        /// <summary>WEIR_LOG_INFO</summary>
        Info = 2,
        /// <summary>WEIR_LOG_DEBUG</summary>
        Debug = 3,
    }

    /// <summary>Devices that a session can run on.</summary>
    public enum DeviceType : int
    {
        /// <summary>The first of these that can run the session: CUDA's device; of Vulkan's devices the discrete GPU
        /// with the most memory, then an integrated GPU; the CPU. A device is passed over whose memory cannot hold the
        /// model, which lacks what the session needs (its policy and options, device memory from hooks), or if the
        /// model's weights are already on another. If weir_runtime_options.vulkan_device names a device, no other one
        /// of Vulkan's is looked at. Never a Vulkan driver that computes on the processor, and a virtual device only if
        /// it is named.</summary>
        Auto = 0,
        /// <summary>This machine's processor cores.</summary>
        Cpu = 1,
        /// <summary>The first NVIDIA GPU that the driver shows.</summary>
        Cuda = 2,
        /// <summary>A device with Vulkan 1.3, see weir_runtime_options.vulkan_device.</summary>
        Vulkan = 3,
    }

    /// <summary>Kinds of devices, see weir_device_info.</summary>
    public enum DeviceKind : int
    {
        /// <summary>A GPU with memory of its own.</summary>
        Discrete = 0,
        /// <summary>A GPU that shares the processor's memory.</summary>
        Integrated = 1,
        /// <summary>A GPU of a virtual machine, or what the driver calls by no other kind.</summary>
        Virtual = 2,
        /// <summary>The processor, also one that a Vulkan driver computes on.</summary>
        Cpu = 3,
    }

    /// <summary>Bits of weir_model_options.flags.</summary>
    [Flags]
    public enum ModelFlags : uint
    {
        /// <summary>None of them.</summary>
        None = 0,
        /// <summary>Load the tokenizer only; files without weights are accepted, sessions and plans are refused
        /// (WEIR_ERR_STATE).</summary>
        VocabOnly = 1,
        /// <summary>Read the whole file at once, so that the first tokens do not wait for the disk.</summary>
        Prefetch = 2,
        /// <summary>Read the file into memory from the allocator hooks instead of mapping it: as many bytes as the file
        /// has, in the runtime's counters. Once the call has returned, the file may change.</summary>
        Copy = 4,
        /// <summary>Read only what the file says about itself, keys and tensors, of any GGUF file, also of one that is
        /// no model. Every call that needs more fails with WEIR_ERR_STATE: sessions, plans and all of weir/text.h. Of a
        /// model in several files, the part at the path, as with WEIR_MODEL_VOCAB_ONLY.</summary>
        DescribeOnly = 8,
    }

    /// <summary>Bits of weir_tokenize flags.</summary>
    [Flags]
    public enum TokenizeFlags : uint
    {
        /// <summary>None of them.</summary>
        None = 0,
        /// <summary>Text such as "&lt;|im_end|&gt;" becomes the control token of that name. Off: it is plain text. Not
        /// for text of others: see weir_chat_tokenize.</summary>
        Special = 1,
        /// <summary>Add the begin/end tokens that the model's file asks for.</summary>
        BosEos = 2,
    }

    /// <summary>Bits of weir_detokenize and weir_detokenizer_create flags.</summary>
    [Flags]
    public enum DetokenizeFlags : uint
    {
        /// <summary>None of them.</summary>
        None = 0,
        /// <summary>Control tokens appear as their text. Off: they vanish.</summary>
        Special = 1,
    }

    /// <summary>Bits of weir_token_info.flags.</summary>
    [Flags]
    public enum TokenFlags : uint
    {
        /// <summary>None of them.</summary>
        None = 0,
        /// <summary>A control token such as BOS.</summary>
        Control = 1,
        /// <summary>One raw byte (byte fallback).</summary>
        Byte = 2,
        /// <summary>Added by the model's makers, ordinary text.</summary>
        UserDefined = 4,
        /// <summary>Stands for text that the vocabulary lacks.</summary>
        Unknown = 8,
        /// <summary>Ends an answer (EOS, end of turn): the file names it as an end, or it is a control token of a text
        /// that ends turns.</summary>
        EndOfGeneration = 16,
    }

    /// <summary>Bits of weir_chat_options.flags and of weir_chat_render flags.</summary>
    [Flags]
    public enum ChatFlags : uint
    {
        /// <summary>None of them.</summary>
        None = 0,
        /// <summary>End with the opening of an assistant turn, so that the model answers.</summary>
        AddAssistant = 1,
        /// <summary>The session already holds a conversation that ends in an answer of the model without its
        /// end-of-turn token: close that turn first, then render `messages` only.</summary>
        Continue = 2,
        /// <summary>Accepted, without any effect: every template is run itself.</summary>
        AcceptResembling = 4,
        /// <summary>The last message is the beginning of an answer: leave its turn open, so that the model goes on with
        /// it. Needs an "assistant" message at the end that the template writes as it is, but for white space around
        /// it.</summary>
        ContinueLast = 8,
    }

    /// <summary>Bits of weir_chat_info.can.</summary>
    [Flags]
    public enum ChatAbilities : uint
    {
        /// <summary>None of them.</summary>
        None = 0,
        /// <summary>System messages.</summary>
        System = 1,
        /// <summary>weir_chat_options.tools_json.</summary>
        Tools = 2,
        /// <summary>Messages of the role "tool".</summary>
        ToolResults = 4,
        /// <summary>The model's thoughts are between tags.</summary>
        Thoughts = 8,
        /// <summary>A variable of the template switches them off.</summary>
        SkipThoughts = 16,
    }

    /// <summary>Bits of weir_session_options.flags.</summary>
    [Flags]
    public enum SessionFlags : uint
    {
        /// <summary>None of them.</summary>
        None = 0,
        /// <summary>Keep the attention masses of every step for the experimental weir_session_trace
        /// (weir/experimental.h); costs some speed and memory.</summary>
        Trace = 1,
        /// <summary>On a device: keys and values stay in host memory and the processor computes the attention of steps;
        /// the device has the weights and computes everything else, also most attention of prompts, over pages that
        /// pass through it. For contexts whose keys and values the device has no room for. Every policy and option
        /// works as on the CPU. Models with recurrent layers are refused; WEIR_DEVICE_AUTO takes the CPU for them. lfps
        /// does it without this flag, and psa with recall=on and a budget below the context. On the CPU it changes
        /// nothing.</summary>
        HostAttention = 2,
    }

    /// <summary>Bits of weir_session_options.spill_flags.</summary>
    [Flags]
    public enum SpillFlags : uint
    {
        /// <summary>None of them.</summary>
        None = 0,
        /// <summary>No page is dropped in silence. A call that would append tokens fails, and appends none, with
        /// WEIR_ERR_BUDGET when the pages that they fill have no room; with WEIR_ERR_IO when a page is lost with the
        /// spill file, and with WEIR_ERR_FORMAT when one proves to be damaged, and so do all later ones until
        /// weir_session_reset.</summary>
        Strict = 1,
        /// <summary>All spilled pages are compressed at once.</summary>
        NoRaw = 2,
        /// <summary>On the CPU and with spill_budget_bytes 0, the store gets what makes the session take half of the
        /// memory that policy dense would take for the same context. The pages that were wanted the longest ago are
        /// dropped for good when it is full. Where the store would then be smaller than the pool, the pool holds the
        /// whole context instead, and nothing is stored. Attention on the host counts as the CPU; with attention on a
        /// device it changes nothing.</summary>
        Half = 4,
    }

    /// <summary>Formats of the keys and values in the KV pages. What they cost in accuracy is measured in
    /// docs/results/formats. Formats but WEIR_KV_BF16 need heads of a multiple of 32 elements. Vulkan has no attention
    /// over them: it needs WEIR_SESSION_HOST_ATTENTION, and WEIR_DEVICE_AUTO takes another device or the CPU.</summary>
    public enum KvFormat : int
    {
        /// <summary>16 bits an element.</summary>
        Bf16 = 0,
        /// <summary>8.5 bits: signed bytes, and a scale for every 32 elements of a token.</summary>
        Q8 = 1,
        /// <summary>6.5 bits: keys as in WEIR_KV_Q8; values in 4.5 bits, after a rotation by a Hadamard matrix that is
        /// taken back behind attention.</summary>
        K8v4 = 2,
        /// <summary>5.25 bits: keys in 4 bits, with the range of every channel over the 16 tokens of a page; values as
        /// in WEIR_KV_K8V4. Attended on the processor only, also beside a device
        /// (WEIR_SESSION_HOST_ATTENTION).</summary>
        K4v4 = 3,
    }

    /// <summary>Why an answer ended.</summary>
    public enum StopReason : int
    {
        /// <summary>It failed before the first token.</summary>
        None = 0,
        /// <summary>The model ended its answer.</summary>
        Eos = 1,
        /// <summary>max_tokens were generated.</summary>
        Length = 2,
        /// <summary>The context is full.</summary>
        Context = 3,
        /// <summary>weir_session_cancel or the callback.</summary>
        Cancelled = 4,
        /// <summary>The call failed; its status says why.</summary>
        Error = 5,
        /// <summary>One of the texts of weir_generate_options.stop came.</summary>
        String = 6,
        /// <summary>With WEIR_GENERATE_STOP_AT_CALL: one or more whole calls of tools came.</summary>
        ToolCall = 7,
        /// <summary>The constraint lets no further token follow: the text is complete by it; or a mask allows none
        /// (weir/constraint.h).</summary>
        Constraint = 8,
    }

    /// <summary>Bits of weir_generate_options.flags.</summary>
    [Flags]
    public enum GenerateFlags : uint
    {
        /// <summary>None of them.</summary>
        None = 0,
        /// <summary>Control tokens appear in the events' text.</summary>
        SpecialText = 1,
        /// <summary>Go on after tokens that end an answer.</summary>
        IgnoreEos = 2,
        /// <summary>After calls of tools, end before the first token that is no part of them, which is not appended, or
        /// with the token that ends the answer: WEIR_STOP_TOOL_CALL. WEIR_ERR_UNSUPPORTED where the model's way of
        /// writing calls is not known (weir_chat_info.tool_format).</summary>
        StopAtCall = 4,
    }

    /// <summary>What the text of an event is part of, by the tags of the model's chat template, or if it has none of
    /// its vocabulary.</summary>
    public enum Segment : int
    {
        /// <summary>What the model says. All of it where the model has no tags.</summary>
        Answer = 0,
        /// <summary>A thought, also one that the prompt has opened.</summary>
        Thought = 1,
        /// <summary>A call of a tool as the model writes it, with the text of control tokens.</summary>
        ToolCall = 2,
        /// <summary>A tag that begins or ends one of these, or what names it. Its text is given with
        /// WEIR_GENERATE_SPECIAL_TEXT alone.</summary>
        Mark = 3,
    }

    /// <summary>What an event of an answer is.</summary>
    public enum EventKind : int
    {
        /// <summary>A token, and the text that is complete with it, perhaps none.</summary>
        Token = 0,
        /// <summary>Text without a token: it was held back for a stop string or because it could have become a tag,
        /// belongs to another segment than the text before it, or no token completes it.</summary>
        Text = 1,
        /// <summary>The answer has ended.</summary>
        End = 2,
    }

    /// <summary>Bits of the flags of weir_session_rewind.</summary>
    [Flags]
    public enum RewindFlags : uint
    {
        /// <summary>None of them.</summary>
        None = 0,
        /// <summary>Go back although pages of the tokens that stay are lost.</summary>
        Lossy = 1,
    }

    /// <summary>Bits of weir_prompt_options.flags.</summary>
    [Flags]
    public enum PromptFlags : uint
    {
        /// <summary>None of them.</summary>
        None = 0,
        /// <summary>Change nothing, only fill the report.</summary>
        Measure = 1,
        /// <summary>Where going back needs pages that are lost, forget the conversation, with its pins and unread page
        /// events, and read all of it again. Without this bit the session goes back without them, and the report counts
        /// them. Layers with a sliding window lose what has left it, under every policy; there this bit is for all who
        /// want no difference.</summary>
        Exact = 2,
        /// <summary>weir_session_prompt only: where the conversation does not fit, leave out its oldest turns, but
        /// neither system messages at its beginning nor the last turn.</summary>
        DropOldest = 4,
    }

    /// <summary>What a constraint is written in.</summary>
    public enum ConstraintKind : int
    {
        /// <summary>Any JSON value; no text.</summary>
        Json = 0,
        /// <summary>A JSON schema.</summary>
        JsonSchema = 1,
        /// <summary>A grammar in llama.cpp's format.</summary>
        Gbnf = 2,
        /// <summary>A list of tools as OpenAI's API has it; the answer is a call of one of them, {"name": ...,
        /// "arguments": {...}}.</summary>
        Tools = 3,
    }

    /// <summary>One log line.</summary>
    public sealed unsafe class LogLine
    {
        /// <summary>WEIR_LOG_*.</summary>
        public LogLevel Level { get; }
        /// <summary>One line of UTF-8, at most 511 bytes. Escaped like the text of weir_last_error.</summary>
        public string Message { get; }

        internal LogLine(Native.weir_log_info* s)
        {
            Level = (LogLevel)s->level;
            Message = Utf8.Of(s->message, s->message_bytes);
        }
    }

    /// <summary>Options of weir_runtime_create.</summary>
    public sealed unsafe partial class RuntimeOptions
    {
        /// <summary>Threads that compute, the caller's included; 1..256. 0 (default): the cores that this process may
        /// use, at most the whole ones in its container's limit (at least 1).</summary>
        public uint ThreadCount { get; set; }
        /// <summary>Allocator hook; null (default) for the system's. Set both hooks or neither.</summary>
        public IntPtr Alloc { get; set; }
        /// <summary>Its counterpart.</summary>
        public IntPtr Free { get; set; }
        /// <summary>Passed to both hooks.</summary>
        public IntPtr AllocUser { get; set; }
        /// <summary>Log hook; null (default) for none.</summary>
        public Action<LogLine> Log { get; set; }
        /// <summary>Most detailed WEIR_LOG_* level wanted. Default WEIR_LOG_ERROR.</summary>
        public LogLevel LogLevel { get; set; }
        /// <summary>Folder of the backend modules (libweir_cuda.so). null (default): that of the library itself. A
        /// relative one means the folder that is current now. It is copied, and shorter than 1024 bytes, with the
        /// current folder if it is relative.</summary>
        public string BackendDir { get; set; }
        /// <summary>Hook for device memory (WEIR_MEMORY_DEVICE, aligned to 256); null (default): the backend's own. Set
        /// both hooks or neither.</summary>
        public IntPtr DeviceAlloc { get; set; }
        /// <summary>Its counterpart.</summary>
        public IntPtr DeviceFree { get; set; }
        /// <summary>Passed to both device hooks.</summary>
        public IntPtr DeviceAllocUser { get; set; }
        /// <summary>Which device WEIR_DEVICE_VULKAN is: its index (weir_device_info), or a part of its name, in any
        /// case of letters. null (default): a discrete GPU before an integrated one before a virtual one before a
        /// driver that computes on the processor, of equals the one with most memory. It is copied, and shorter than
        /// 256 bytes. A session on it fails with WEIR_ERR_NOT_FOUND if there is no such device, and
        /// WEIR_ERR_INVALID_ARG if several have the name. Both list the devices. A process uses one device: a session
        /// on a second one fails with WEIR_ERR_UNSUPPORTED, which names both.</summary>
        public string VulkanDevice { get; set; }
        /// <summary>Folder (UTF-8) for what drivers compiled, so that the first session of the next process need not
        /// wait for it: Vulkan's pipelines, one file for each device, up to 128 MiB. It is made when it is needed. It
        /// and the files must belong to the user and be writable by nobody else, and a link to the folder must be the
        /// user's own too. What is damaged or of another driver is written anew, and what cannot be read or written
        /// costs time and a log line, never a session. So does a relative folder where the current one is gone. null
        /// (default): nothing is kept. It is copied, made absolute, and shorter than 1024 bytes.</summary>
        public string CacheDir { get; set; }

        internal Native.weir_runtime_options* ToNative(Arena a)
        {
            var s = (Native.weir_runtime_options*)a.New(sizeof(Native.weir_runtime_options));
            Fill(a, s);
            return s;
        }

        internal void Fill(Arena a, Native.weir_runtime_options* s)
        {
            s->struct_size = (uint)sizeof(Native.weir_runtime_options);
            s->n_threads = ThreadCount;
            s->alloc = Alloc;
            s->free = Free;
            s->alloc_user = (void*)AllocUser;
            s->log = a.Log(Log, out s->log_user);
            s->log_level = (int)LogLevel;
            s->backend_dir = a.Text("BackendDir", BackendDir);
            s->device_alloc = DeviceAlloc;
            s->device_free = DeviceFree;
            s->device_alloc_user = (void*)DeviceAllocUser;
            s->vulkan_device = a.Text("VulkanDevice", VulkanDevice);
            s->cache_dir = a.Text("CacheDir", CacheDir);
        }
    }

    /// <summary>What a runtime holds, see weir_runtime_memory.</summary>
    public sealed unsafe class MemoryCounters
    {
        /// <summary>Bytes now allocated through the host hooks.</summary>
        public ulong Bytes { get; }
        /// <summary>Highest value of bytes so far.</summary>
        public ulong PeakBytes { get; }
        /// <summary>Allocations made so far.</summary>
        public ulong AllocCount { get; }
        /// <summary>Frees made so far.</summary>
        public ulong FreeCount { get; }
        /// <summary>Device memory now allocated: weights and sessions.</summary>
        public ulong DeviceBytes { get; }
        /// <summary>Highest value of device_bytes so far.</summary>
        public ulong DevicePeakBytes { get; }
        /// <summary>Allocations of device memory made so far.</summary>
        public ulong DeviceAllocCount { get; }
        /// <summary>Frees of device memory made so far.</summary>
        public ulong DeviceFreeCount { get; }

        internal MemoryCounters(Native.weir_memory_counters* s)
        {
            Bytes = s->bytes;
            PeakBytes = s->peak_bytes;
            AllocCount = s->n_allocs;
            FreeCount = s->n_frees;
            DeviceBytes = s->device_bytes;
            DevicePeakBytes = s->device_peak_bytes;
            DeviceAllocCount = s->n_device_allocs;
            DeviceFreeCount = s->n_device_frees;
        }
    }

    /// <summary>A device of this machine, see weir_runtime_devices.</summary>
    public sealed unsafe class DeviceInfo
    {
        /// <summary>Among the devices of its backend; weir_runtime_options.vulkan_device takes it.</summary>
        public uint Index { get; }
        /// <summary>WEIR_DEVICE_*, never WEIR_DEVICE_AUTO: which backend has it. A GPU that two of them have is listed
        /// twice.</summary>
        public DeviceType Backend { get; }
        /// <summary>WEIR_DEVICE_KIND_*.</summary>
        public DeviceKind Kind { get; }
        /// <summary>1: sessions of this runtime may run on it, as far as can be told without opening it. 0: not, see
        /// `why_not`.</summary>
        public bool IsUsable { get; }
        /// <summary>All of its memory; of a processor the machine's, or what the container may use of it.</summary>
        public ulong MemoryBytes { get; }
        /// <summary>One line of UTF-8.</summary>
        public string Name { get; }
        /// <summary>Likewise: the driver and its version; of the CPU the instruction set in use.</summary>
        public string Driver { get; }
        /// <summary>Likewise: what it lacks; "" if it is usable.</summary>
        public string WhyNot { get; }

        internal DeviceInfo(Native.weir_device_info* s)
        {
            Index = s->index;
            Backend = (DeviceType)s->backend;
            Kind = (DeviceKind)s->kind;
            IsUsable = s->is_usable != 0;
            MemoryBytes = s->memory_bytes;
            Name = Utf8.Of(s->name);
            Driver = Utf8.Of(s->driver);
            WhyNot = Utf8.Of(s->why_not);
        }

        internal static DeviceInfo[] ListOf(Native.weir_device_info* s, ulong n)
        {
            if (n == 0)
                return Array.Empty<DeviceInfo>();
            var all = new DeviceInfo[n];
            for (ulong i = 0; i < n; i++)
                all[i] = new DeviceInfo(s + i);
            return all;
        }
    }

    /// <summary>Progress of a long call.</summary>
    public sealed unsafe class Progress
    {
        /// <summary>Units done, 0..total: bytes in weir_model_open and where text becomes tokens, tokens in
        /// weir_session_prefill.</summary>
        public ulong Done { get; }
        /// <summary>Units in all.</summary>
        public ulong Total { get; }

        internal Progress(Native.weir_progress_info* s)
        {
            Done = s->done;
            Total = s->total;
        }
    }

    /// <summary>Options of weir_model_open.</summary>
    public sealed unsafe partial class ModelOptions
    {
        /// <summary>WEIR_MODEL_*. Default 0.</summary>
        public ModelFlags Flags { get; set; }
        /// <summary>Progress and cancel, see weir_model_open; null (default) for none.</summary>
        public Func<Progress, bool> Progress { get; set; }

        internal Native.weir_model_options* ToNative(Arena a)
        {
            var s = (Native.weir_model_options*)a.New(sizeof(Native.weir_model_options));
            Fill(a, s);
            return s;
        }

        internal void Fill(Arena a, Native.weir_model_options* s)
        {
            s->struct_size = (uint)sizeof(Native.weir_model_options);
            s->flags = (uint)Flags;
            s->progress = a.Progress(Progress, out s->progress_user);
        }
    }

    /// <summary>Facts about a model. Sizes are 0 for what a vocabulary-only file does not say.</summary>
    public sealed unsafe class ModelInfo
    {
        /// <summary>Transformer layers.</summary>
        public uint LayerCount { get; }
        /// <summary>Query heads of a layer.</summary>
        public uint HeadCount { get; }
        /// <summary>KV heads of a layer.</summary>
        public uint KvHeadCount { get; }
        /// <summary>Elements of a head.</summary>
        public uint HeadDim { get; }
        /// <summary>Width of the residual stream.</summary>
        public uint DModel { get; }
        /// <summary>Inner width of the feed-forward part.</summary>
        public uint DFf { get; }
        /// <summary>Tokens of the vocabulary.</summary>
        public uint VocabSize { get; }
        /// <summary>Positions the model was trained for.</summary>
        public uint ContextTokens { get; }
        /// <summary>Tensors in the file.</summary>
        public uint TensorCount { get; }
        /// <summary>Weights in all tensors.</summary>
        public ulong ParamCount { get; }
        /// <summary>Bytes of all tensors in the file; used where they lie in it, mapped or copied.</summary>
        public ulong WeightsBytes { get; }
        /// <summary>Size of the file, or of all its parts together.</summary>
        public ulong FileBytes { get; }
        /// <summary>Hash of hyper-parameters, tensor table and vocabulary; 0 with WEIR_MODEL_VOCAB_ONLY.</summary>
        public ulong Fingerprint { get; }
        /// <summary>general.architecture: "llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "smollm3", "granite",
        /// "olmo2", "glm4", "qwen3vl", "mistral3", "qwen35", "lfm2", "nemotron_h", "granitehybrid", "qwen2moe",
        /// "qwen3moe", "qwen3vlmoe", "gpt-oss", "glm4moe", "granitemoe", "qwen35moe", "qwen3next", "lfm2moe" or
        /// "nemotron_h_moe".</summary>
        public string Architecture { get; }
        /// <summary>general.name as one line of UTF-8, or "".</summary>
        public string Name { get; }
        /// <summary>Type of most weights, such as "q8_0".</summary>
        public string WeightType { get; }
        /// <summary>"jinja" when the file has a chat template, which is run; "" when there is none.</summary>
        public string ChatTemplate { get; }
        /// <summary>Tokenizer kind and pre-tokenizer, such as "gpt2/llama-bpe".</summary>
        public string Tokenizer { get; }
        /// <summary>Bytes of the file in memory of the allocator hooks: all of them with WEIR_MODEL_COPY, 0 when it is
        /// mapped.</summary>
        public ulong CopiedBytes { get; }
        /// <summary>Always "": every template is run itself.</summary>
        public string ChatResembles { get; }
        /// <summary>Files that the model is in, at least 1; see weir_model_open.</summary>
        public uint PartCount { get; }

        internal ModelInfo(Native.weir_model_info* s)
        {
            LayerCount = s->n_layers;
            HeadCount = s->n_heads;
            KvHeadCount = s->n_kv_heads;
            HeadDim = s->head_dim;
            DModel = s->d_model;
            DFf = s->d_ff;
            VocabSize = s->vocab_size;
            ContextTokens = s->context_tokens;
            TensorCount = s->n_tensors;
            ParamCount = s->n_params;
            WeightsBytes = s->weights_bytes;
            FileBytes = s->file_bytes;
            Fingerprint = s->fingerprint;
            Architecture = Utf8.Of(s->architecture);
            Name = Utf8.Of(s->name);
            WeightType = Utf8.Of(s->weight_type);
            ChatTemplate = Utf8.Of(s->chat_template);
            Tokenizer = Utf8.Of(s->tokenizer);
            CopiedBytes = s->copied_bytes;
            ChatResembles = Utf8.Of(s->chat_resembles);
            PartCount = s->n_parts;
        }
    }

    /// <summary>One tensor of a model.</summary>
    public sealed unsafe class TensorInfo
    {
        /// <summary>1..4.</summary>
        public uint DimCount { get; }
        /// <summary>Slowest axis first; unused ones are 1.</summary>
        public IReadOnlyList<ulong> Dims { get; }
        /// <summary>Size in the file.</summary>
        public ulong Bytes { get; }
        /// <summary>Where its bytes start in the file.</summary>
        public ulong FileOffset { get; }
        /// <summary>Its name in the file.</summary>
        public string Name { get; }
        /// <summary>Such as "q8_0".</summary>
        public string Type { get; }
        /// <summary>Which of the model's files it is in, 0 .. n_parts - 1.</summary>
        public uint Part { get; }

        internal TensorInfo(Native.weir_tensor_info* s)
        {
            DimCount = s->n_dims;
            Dims = new[] { s->dims[0], s->dims[1], s->dims[2], s->dims[3] };
            Bytes = s->bytes;
            FileOffset = s->file_offset;
            Name = Utf8.Of(s->name);
            Type = Utf8.Of(s->type);
            Part = s->part;
        }
    }

    /// <summary>One token of a vocabulary.</summary>
    public sealed unsafe class TokenInfo
    {
        /// <summary>WEIR_TOKEN_*.</summary>
        public TokenFlags Flags { get; }
        /// <summary>As stored in the file, UTF-8.</summary>
        public string Text { get; }
        /// <summary>Score of SentencePiece vocabularies, else 0.</summary>
        public float Score { get; }
        /// <summary>What the token stands for in running text, a space where the text above has a sign for one. Any
        /// bytes, perhaps part of a UTF-8 sequence. Of control and unknown tokens their text.</summary>
        public byte[] Bytes { get; }

        internal TokenInfo(Native.weir_token_info* s)
        {
            Flags = (TokenFlags)s->flags;
            Text = Utf8.Of(s->text, s->text_bytes);
            Score = s->score;
            Bytes = Utf8.Bytes(s->bytes, s->n_bytes);
        }
    }

    /// <summary>Tokens with a special meaning, -1 where the model has none.</summary>
    public sealed unsafe class SpecialTokens
    {
        /// <summary>Begin of text.</summary>
        public int Bos { get; }
        /// <summary>End of text or turn.</summary>
        public int Eos { get; }
        /// <summary>End of turn, when it differs from eos.</summary>
        public int Eot { get; }
        /// <summary>Unknown.</summary>
        public int Unk { get; }
        /// <summary>Padding.</summary>
        public int Pad { get; }
        /// <summary>1 when WEIR_TOKENIZE_BOS_EOS adds bos, else 0.</summary>
        public int AddBos { get; }
        /// <summary>1 when WEIR_TOKENIZE_BOS_EOS adds eos, else 0.</summary>
        public int AddEos { get; }

        internal SpecialTokens(Native.weir_special_tokens* s)
        {
            Bos = s->bos;
            Eos = s->eos;
            Eot = s->eot;
            Unk = s->unk;
            Pad = s->pad;
            AddBos = s->add_bos;
            AddEos = s->add_eos;
        }
    }

    /// <summary>One message of a conversation. It may grow in later versions; callers of weir_chat_tokenize and
    /// weir_session_prompt say how large theirs are (weir_chat_options.message_bytes).</summary>
    public sealed unsafe partial class Message
    {
        /// <summary>"system", "user" or "assistant". Also "tool" and "developer" where the template has words for
        /// them.</summary>
        public string Role { get; set; }
        /// <summary>UTF-8. null with content_bytes 0: empty.</summary>
        public string Content { get; set; }
        /// <summary>What the model thought before an answer, UTF-8 without tags; null: nothing. The template decides
        /// whether it is kept: most leave out those of earlier turns.</summary>
        public string Thought { get; set; }
        /// <summary>The calls in an answer, JSON, a list of objects with "name", "arguments" (an object) and perhaps
        /// "id", or as in OpenAI's API, with these two in "function". null: none.</summary>
        public string ToolCallsJson { get; set; }
        /// <summary>The call that a tool's result answers; null: not said.</summary>
        public string ToolCallId { get; set; }
        /// <summary>The tool that a result is of; else who speaks; null: not said.</summary>
        public string Name { get; set; }

        internal Native.weir_chat_message* ToNative(Arena a)
        {
            var s = (Native.weir_chat_message*)a.New(sizeof(Native.weir_chat_message));
            Fill(a, s);
            return s;
        }

        internal void Fill(Arena a, Native.weir_chat_message* s)
        {
            s->role = a.Text("Role", Role);
            s->content = a.Sized(Content, out s->content_bytes);
            s->thought = a.Sized(Thought, out s->thought_bytes);
            s->tool_calls_json = a.Text("ToolCallsJson", ToolCallsJson);
            s->tool_call_id = a.Text("ToolCallId", ToolCallId);
            s->name = a.Text("Name", Name);
        }
    }

    /// <summary>Options of weir_chat_tokenize and weir_session_prompt.</summary>
    public sealed unsafe partial class ChatOptions
    {
        /// <summary>WEIR_CHAT_*. Default 0.</summary>
        public ChatFlags Flags { get; set; }
        /// <summary>Progress in bytes of the rendered text, and cancel, as in weir_tokenize_with; null (default) for
        /// none.</summary>
        public Func<Progress, bool> Progress { get; set; }
        /// <summary>A chat template (Jinja) to use instead of the file's, at most 2^18 bytes, or the name of a built-in
        /// one: "chatml", "llama3", "mistral", "gemma", "granite", "glm4" or "harmony". null (default): the
        /// file's.</summary>
        public string TemplateText { get; set; }
        /// <summary>The tools that the model may call: a JSON list as in OpenAI's API. null (default): none.
        /// WEIR_ERR_UNSUPPORTED where the template has no place for them.</summary>
        public string ToolsJson { get; set; }
        /// <summary>More variables of the template: a JSON object, such as {"enable_thinking": false}. null (default):
        /// none. One that the template never reads is WEIR_ERR_NOT_FOUND, so that nothing is switched off in
        /// vain.</summary>
        public string VariablesJson { get; set; }
        /// <summary>What strftime_now sees, in seconds since 1970, as UTC; 0 (default): the time of the call.</summary>
        public long UnixTime { get; set; }

        internal Native.weir_chat_options* ToNative(Arena a)
        {
            var s = (Native.weir_chat_options*)a.New(sizeof(Native.weir_chat_options));
            Fill(a, s);
            return s;
        }

        internal void Fill(Arena a, Native.weir_chat_options* s)
        {
            s->struct_size = (uint)sizeof(Native.weir_chat_options);
            s->flags = (uint)Flags;
            s->message_bytes = (uint)sizeof(Native.weir_chat_message);
            s->progress = a.Progress(Progress, out s->progress_user);
            s->template_text = a.Text("TemplateText", TemplateText);
            s->tools_json = a.Text("ToolsJson", ToolsJson);
            s->variables_json = a.Text("VariablesJson", VariablesJson);
            s->unix_time = UnixTime;
        }
    }

    /// <summary>Options of weir_tokenize_with.</summary>
    public sealed unsafe partial class TokenizeOptions
    {
        /// <summary>WEIR_TOKENIZE_*. Default 0.</summary>
        public TokenizeFlags Flags { get; set; }
        /// <summary>Progress and cancel, see weir_tokenize_with; null (default) for none.</summary>
        public Func<Progress, bool> Progress { get; set; }

        internal Native.weir_tokenize_options* ToNative(Arena a)
        {
            var s = (Native.weir_tokenize_options*)a.New(sizeof(Native.weir_tokenize_options));
            Fill(a, s);
            return s;
        }

        internal void Fill(Arena a, Native.weir_tokenize_options* s)
        {
            s->struct_size = (uint)sizeof(Native.weir_tokenize_options);
            s->flags = (uint)Flags;
            s->progress = a.Progress(Progress, out s->progress_user);
        }
    }

    /// <summary>What a model's chat template can do, and how the parts of its answers are told apart.</summary>
    public sealed unsafe class ChatInfo
    {
        /// <summary>WEIR_CHAT_CAN_*.</summary>
        public ChatAbilities Can { get; }
        /// <summary>Text that begins a thought, "" when the model has no tags.</summary>
        public string ThoughtBegin { get; }
        /// <summary>Text that ends it, "" likewise.</summary>
        public string ThoughtEnd { get; }
        /// <summary>Name of the model's way of writing calls of tools, "hermes", "llama3", "mistral", "harmony" and so
        /// on, or "" when none is known.</summary>
        public string ToolFormat { get; }

        internal ChatInfo(Native.weir_chat_info* s)
        {
            Can = (ChatAbilities)s->can;
            ThoughtBegin = Utf8.Of(s->thought_begin);
            ThoughtEnd = Utf8.Of(s->thought_end);
            ToolFormat = Utf8.Of(s->tool_format);
        }
    }

    /// <summary>Options of weir_plan and weir_session_create.</summary>
    public sealed unsafe partial class SessionOptions
    {
        /// <summary>WEIR_SESSION_*.</summary>
        public SessionFlags Flags { get; set; }
        /// <summary>WEIR_DEVICE_*. Default WEIR_DEVICE_AUTO.</summary>
        public DeviceType Device { get; set; }
        /// <summary>Most positions the conversation may reach. 0 (default): what the model was trained for.</summary>
        public uint ContextTokens { get; set; }
        /// <summary>Tokens of one prefill chunk, 1..4096. Default 512, less when the context is smaller.</summary>
        public uint BatchTokens { get; set; }
        /// <summary>Tokens of one KV page. Only 16 (default) exists.</summary>
        public uint PageTokens { get; set; }
        /// <summary>KV budget in tokens per (layer, kv head) stream. 0 (default): the whole context.</summary>
        public uint BudgetTokens { get; set; }
        /// <summary>Longest prompt to plan for where a policy keeps prompts beyond the budget. Default 0.</summary>
        public uint MaxPromptTokens { get; set; }
        /// <summary>KV budget in bytes for all streams together, instead of budget_tokens: as many tokens per stream as
        /// fit into it. A policy that keeps more than its budget (quest, hybrid, dense layers of h2o and tova) takes
        /// more, as the plan shows. 0 (default): not used.</summary>
        public ulong BudgetBytes { get; set; }
        /// <summary>Host memory for pages outside the KV pool, at least one page of each stream that the budget rules.
        /// With recall (arkvale, and raas, hybrid and psa with recall=on) steps bring pages back from it, 0 (default)
        /// is what the whole context needs at worst, and when it is full, pages move to the spill file. Without one, or
        /// when that is full too, those that were wanted the longest ago are dropped for good. 0 is never more than
        /// half of the memory of the machine, or of the container's limit. spill_tokens of the plan says what is held
        /// for sure. Other policies that let pages go keep copies there, which no step reads, on the CPU only, and 0
        /// (default) keeps none.</summary>
        public ulong SpillBudgetBytes { get; set; }
        /// <summary>"dense" (also null, default), "sink", "h2o", "tova", "quest", "raas", "hybrid", "random",
        /// "arkvale", "psa", "lfps", "keyformer", "scissorhands". Copied.</summary>
        public string Policy { get; set; }
        /// <summary>[n_policy_options] options of the policy, docs/policies.md. Copied; the file of heads_file is only
        /// read in the call.</summary>
        public IDictionary<string, string> PolicyOptions { get; set; }
        /// <summary>The part of spill_budget_bytes for uncompressed pages, all but those that were wanted the longest
        /// ago. 0 (default): all of it if it holds the whole context so, else as much as leaves room for the other
        /// pages at four fifths of their bytes, at least a quarter.</summary>
        public ulong SpillRawBytes { get; set; }
        /// <summary>Path (UTF-8) of a file of spill_file_bytes for the pages that spill_budget_bytes have no room for.
        /// Nothing may be there: the file is created, and its name removed at once. Used while the session is created,
        /// and for its forks: a relative one means the folder that is current in weir_session_create. null (default):
        /// no file.</summary>
        public string SpillPath { get; set; }
        /// <summary>Size of that file, reserved on the disk at once. 0 (default): no file.</summary>
        public ulong SpillFileBytes { get; set; }
        /// <summary>WEIR_SPILL_*.</summary>
        public SpillFlags SpillFlags { get; set; }
        /// <summary>Host memory for snapshots of the state of recurrent layers, at least one of them
        /// (weir_plan_info.snapshot_bytes / n_snapshots). A conversation goes back to a snapshot, and reads again from
        /// there. 0 (default): four. Not read for models that have attention in every layer.</summary>
        public ulong SnapshotBudgetBytes { get; set; }
        /// <summary>There is a snapshot at every multiple of so many tokens, 16 or more, and where prompts begin and
        /// end, as many as have room, at most 1,024. Those of the last prompt stay however long the answer is. With
        /// room for one, that of its end does. 0 (default): 1,024.</summary>
        public uint SnapshotTokens { get; set; }
        /// <summary>WEIR_KV_*: what keys and values are stored in. WEIR_KV_BF16 (0) is the default. Budgets in bytes
        /// hold more tokens in smaller formats.</summary>
        public KvFormat KvFormat { get; set; }

        internal Native.weir_session_options* ToNative(Arena a)
        {
            var s = (Native.weir_session_options*)a.New(sizeof(Native.weir_session_options));
            Fill(a, s);
            return s;
        }

        internal void Fill(Arena a, Native.weir_session_options* s)
        {
            s->struct_size = (uint)sizeof(Native.weir_session_options);
            s->flags = (uint)Flags;
            s->device = (int)Device;
            s->context_tokens = ContextTokens;
            s->batch_tokens = BatchTokens;
            s->page_tokens = PageTokens;
            s->budget_tokens = BudgetTokens;
            s->max_prompt_tokens = MaxPromptTokens;
            s->budget_bytes = BudgetBytes;
            s->spill_budget_bytes = SpillBudgetBytes;
            s->policy = a.Text("Policy", Policy);
            s->policy_options = a.KeyValues(PolicyOptions, out s->n_policy_options);
            s->spill_raw_bytes = SpillRawBytes;
            s->spill_path = a.Text("SpillPath", SpillPath);
            s->spill_file_bytes = SpillFileBytes;
            s->spill_flags = (uint)SpillFlags;
            s->snapshot_budget_bytes = SnapshotBudgetBytes;
            s->snapshot_tokens = SnapshotTokens;
            s->kv_format = (int)KvFormat;
        }
    }

    /// <summary>The exact bytes of every pool of a session, known before anything is allocated.</summary>
    public sealed unsafe class Plan
    {
        /// <summary>Most positions.</summary>
        public uint ContextTokens { get; }
        /// <summary>Tokens of one stream that fit: pages_per_stream * page_tokens.</summary>
        public uint BudgetTokens { get; }
        /// <summary>Tokens of a page.</summary>
        public uint PageTokens { get; }
        /// <summary>Pages a stream can hold; streams of layers that a policy leaves dense hold the context.</summary>
        public uint PagesPerStream { get; }
        /// <summary>Layers with attention times KV heads.</summary>
        public uint StreamCount { get; }
        /// <summary>Bytes of one page.</summary>
        public ulong PageBytes { get; }
        /// <summary>Weights in the file, mapped and shared by all sessions; not in total_bytes.</summary>
        public ulong WeightsBytes { get; }
        /// <summary>Resident KV pages.</summary>
        public ulong KvBytes { get; }
        /// <summary>Page digests.</summary>
        public ulong DigestBytes { get; }
        /// <summary>Page tables, stamps, scores, free lists; on the CPU also the ring of page events.</summary>
        public ulong TableBytes { get; }
        /// <summary>Activations, logits, partial results of attention.</summary>
        public ulong WorkspaceBytes { get; }
        /// <summary>Sampler state, and the tokens of the conversation that are kept (weir_session_tokens).</summary>
        public ulong SamplerBytes { get; }
        /// <summary>The session object itself.</summary>
        public ulong SessionBytes { get; }
        /// <summary>Host memory that a device copies from and to: the host's page tables and the ring of page events,
        /// or with attention on the host activations, and two parts of a layer's pages on their way. 0 on the CPU. A
        /// Vulkan driver gives it, not the host hooks, and it is counted like theirs.</summary>
        public ulong StagingBytes { get; }
        /// <summary>Host memory of the store of pages outside the KV pool: its pages, the queue to its compression and
        /// all that this needs. Else 0. A Vulkan driver gives the part for uncompressed pages, as it gives
        /// staging_bytes.</summary>
        public ulong SpillBytes { get; }
        /// <summary>What vendor libraries reserve; 0, as no backend of this version uses one.</summary>
        public ulong LibraryBytes { get; }
        /// <summary>All of the session's own memory: the sum of the fields from kv_bytes to library_bytes,
        /// recurrent_bytes and snapshot_bytes.</summary>
        public ulong TotalBytes { get; }
        /// <summary>The part of total_bytes on the device: pages, digests, tables, workspace and recurrent_bytes. With
        /// attention on the host, part of workspace_bytes. 0 on the CPU.</summary>
        public ulong DeviceBytes { get; }
        /// <summary>Device memory of the weights, shared by all sessions of the model there; not in
        /// total_bytes.</summary>
        public ulong DeviceWeightsBytes { get; }
        /// <summary>WEIR_DEVICE_* that the session will run on.</summary>
        public DeviceType Device { get; }
        /// <summary>Those of the n_streams in layers with a sliding window of their own.</summary>
        public uint WindowStreamCount { get; }
        /// <summary>Pages that such a stream can hold instead of pages_per_stream, whatever the policy and the budget:
        /// those of the window and of a prompt chunk of batch_tokens.</summary>
        public uint WindowPagesPerStream { get; }
        /// <summary>The part of kv_bytes for pages of such streams.</summary>
        public ulong WindowKvBytes { get; }
        /// <summary>Size of the spill file; not in total_bytes.</summary>
        public ulong SpillFileBytes { get; }
        /// <summary>Those of the n_streams whose KV heads the option heads makes hold the first tokens and a
        /// window.</summary>
        public uint HeadStreamCount { get; }
        /// <summary>Pages that such a stream can hold, whatever the policy and the budget: those of the first tokens,
        /// of the window and of a prompt chunk of batch_tokens.</summary>
        public uint HeadPagesPerStream { get; }
        /// <summary>The part of kv_bytes for pages of such streams.</summary>
        public ulong HeadKvBytes { get; }
        /// <summary>The part of spill_bytes for pages as they are.</summary>
        public ulong SpillRawBytes { get; }
        /// <summary>The part of spill_bytes for compressed pages.</summary>
        public ulong SpillCompressedBytes { get; }
        /// <summary>Positions whose pages the store and its file hold whatever is in them. With fewer than
        /// context_tokens, pages may be dropped for good, those first that were wanted the longest ago. 0 without a
        /// store.</summary>
        public uint SpillTokens { get; }
        /// <summary>State of recurrent layers, twice: of now, and what the next step writes. It does not grow with the
        /// conversation.</summary>
        public ulong RecurrentBytes { get; }
        /// <summary>Host memory of n_snapshots copies of that state.</summary>
        public ulong SnapshotBytes { get; }
        /// <summary>How many places of the conversation are kept to go back to, besides its beginning. 0 where every
        /// layer has attention.</summary>
        public uint SnapshotCount { get; }
        /// <summary>weir_session_options.snapshot_tokens, or its default. 0 where every layer has attention.</summary>
        public uint SnapshotTokens { get; }

        internal Plan(Native.weir_plan_info* s)
        {
            ContextTokens = s->context_tokens;
            BudgetTokens = s->budget_tokens;
            PageTokens = s->page_tokens;
            PagesPerStream = s->pages_per_stream;
            StreamCount = s->n_streams;
            PageBytes = s->page_bytes;
            WeightsBytes = s->weights_bytes;
            KvBytes = s->kv_bytes;
            DigestBytes = s->digest_bytes;
            TableBytes = s->table_bytes;
            WorkspaceBytes = s->workspace_bytes;
            SamplerBytes = s->sampler_bytes;
            SessionBytes = s->session_bytes;
            StagingBytes = s->staging_bytes;
            SpillBytes = s->spill_bytes;
            LibraryBytes = s->library_bytes;
            TotalBytes = s->total_bytes;
            DeviceBytes = s->device_bytes;
            DeviceWeightsBytes = s->device_weights_bytes;
            Device = (DeviceType)s->device;
            WindowStreamCount = s->n_window_streams;
            WindowPagesPerStream = s->window_pages_per_stream;
            WindowKvBytes = s->window_kv_bytes;
            SpillFileBytes = s->spill_file_bytes;
            HeadStreamCount = s->n_head_streams;
            HeadPagesPerStream = s->head_pages_per_stream;
            HeadKvBytes = s->head_kv_bytes;
            SpillRawBytes = s->spill_raw_bytes;
            SpillCompressedBytes = s->spill_compressed_bytes;
            SpillTokens = s->spill_tokens;
            RecurrentBytes = s->recurrent_bytes;
            SnapshotBytes = s->snapshot_bytes;
            SnapshotCount = s->n_snapshots;
            SnapshotTokens = s->snapshot_tokens;
        }
    }

    /// <summary>Memory of a live session.</summary>
    public sealed unsafe class MemoryInfo
    {
        /// <summary>weir_plan_info.total_bytes of this session.</summary>
        public ulong PlanBytes { get; }
        /// <summary>Allocated now.</summary>
        public ulong Bytes { get; }
        /// <summary>Highest value so far.</summary>
        public ulong PeakBytes { get; }
        /// <summary>Size of the KV pool.</summary>
        public ulong KvBudgetBytes { get; }
        /// <summary>Bytes of the pages that hold tokens now.</summary>
        public ulong KvBytes { get; }
        /// <summary>Highest value so far.</summary>
        public ulong KvPeakBytes { get; }
        /// <summary>Allocations of this session.</summary>
        public ulong AllocCount { get; }
        /// <summary>Allocations made after create, also of device memory; Weir promises 0.</summary>
        public ulong AllocsWhileDecoding { get; }
        /// <summary>The part of bytes that is memory of the device.</summary>
        public ulong DeviceBytes { get; }

        internal MemoryInfo(Native.weir_memory_info* s)
        {
            PlanBytes = s->plan_bytes;
            Bytes = s->bytes;
            PeakBytes = s->peak_bytes;
            KvBudgetBytes = s->kv_budget_bytes;
            KvBytes = s->kv_bytes;
            KvPeakBytes = s->kv_peak_bytes;
            AllocCount = s->n_allocs;
            AllocsWhileDecoding = s->allocs_while_decoding;
            DeviceBytes = s->device_bytes;
        }
    }

    /// <summary>Counters of a session since its creation (weir_session_reset keeps them).</summary>
    public sealed unsafe class Stats
    {
        /// <summary>Positions now in the conversation.</summary>
        public uint TokenCount { get; }
        /// <summary>Tokens that went through prefill.</summary>
        public ulong PromptCount { get; }
        /// <summary>Tokens that went through step or generate.</summary>
        public ulong DecodeCount { get; }
        /// <summary>Pages that hold tokens now, all streams.</summary>
        public ulong PagesResident { get; }
        /// <summary>Highest value so far.</summary>
        public ulong PagesResidentMax { get; }
        /// <summary>Pages that left because of the budget, each as often as it left.</summary>
        public ulong PagesEvicted { get; }
        /// <summary>Those of pages_evicted that were kept in host memory and not dropped.</summary>
        public ulong PagesSpilled { get; }
        /// <summary>Times that a page came back from there.</summary>
        public ulong PagesRecalled { get; }
        /// <summary>Pages that are gone for good.</summary>
        public ulong PagesDropped { get; }
        /// <summary>Time inside prefill.</summary>
        public ulong PrefillNs { get; }
        /// <summary>Time of decode steps and of drawing tokens in generate, without the callback.</summary>
        public ulong DecodeNs { get; }
        /// <summary>Pages that the latest decode step attended, all streams; a page counts once for each list that
        /// contains it.</summary>
        public ulong PagesAttended { get; }
        /// <summary>Pages that are now in host memory alone.</summary>
        public ulong PagesCold { get; }
        /// <summary>Host memory that spilled pages take now, copies of resident pages included.</summary>
        public ulong SpillStoredBytes { get; }
        /// <summary>The part of decode_ns in which pages came back.</summary>
        public ulong RecallNs { get; }
        /// <summary>Times that a page had to wait for the compression of others.</summary>
        public ulong SpillWaits { get; }
        /// <summary>Spilled pages that proved to be damaged, and 1 when the spill file was given up because reading or
        /// writing failed. Such pages count as dropped.</summary>
        public ulong SpillErrors { get; }
        /// <summary>Spilled pages that are uncompressed now, copies of resident pages included.</summary>
        public ulong SpillPagesRaw { get; }
        /// <summary>Times that a compressed page was restored to be read.</summary>
        public ulong SpillRestored { get; }

        internal Stats(Native.weir_session_stats* s)
        {
            TokenCount = s->n_tokens;
            PromptCount = s->n_prompt;
            DecodeCount = s->n_decode;
            PagesResident = s->pages_resident;
            PagesResidentMax = s->pages_resident_max;
            PagesEvicted = s->pages_evicted;
            PagesSpilled = s->pages_spilled;
            PagesRecalled = s->pages_recalled;
            PagesDropped = s->pages_dropped;
            PrefillNs = s->prefill_ns;
            DecodeNs = s->decode_ns;
            PagesAttended = s->pages_attended;
            PagesCold = s->pages_cold;
            SpillStoredBytes = s->spill_stored_bytes;
            RecallNs = s->recall_ns;
            SpillWaits = s->spill_waits;
            SpillErrors = s->spill_errors;
            SpillPagesRaw = s->spill_pages_raw;
            SpillRestored = s->spill_restored;
        }
    }

    /// <summary>Where a page of a conversation is: in how many of weir_plan_info.n_streams streams.</summary>
    public sealed unsafe class PageState
    {
        /// <summary>In the KV pool.</summary>
        public ushort Resident { get; }
        /// <summary>In host memory or the spill file alone.</summary>
        public ushort Cold { get; }
        /// <summary>Nowhere: dropped, or behind a sliding window. The three make up all streams.</summary>
        public ushort Lost { get; }
        /// <summary>Streams where it may not leave: pinned by the application, or by the policy as a prompt.</summary>
        public ushort Pinned { get; }

        internal PageState(Native.weir_page_state* s)
        {
            Resident = s->resident;
            Cold = s->cold;
            Lost = s->lost;
            Pinned = s->pinned;
        }

        internal static PageState[] ListOf(Native.weir_page_state* s, ulong n)
        {
            if (n == 0)
                return Array.Empty<PageState>();
            var all = new PageState[n];
            for (ulong i = 0; i < n; i++)
                all[i] = new PageState(s + i);
            return all;
        }
    }

    /// <summary>How the next token is drawn. Applied in this order: bias, repetition penalty, frequency and presence
    /// penalty, temperature, top-k, top-p, min-p.</summary>
    public sealed unsafe partial class SamplingOptions
    {
        /// <summary>Keep the k most probable tokens; 0 (default): all.</summary>
        public uint TopK { get; set; }
        /// <summary>0 (default): greedy, the most probable token, the lowest id on a tie. At most 100.</summary>
        public float Temperature { get; set; }
        /// <summary>Keep the smallest set with this probability; (0, 1]; 0 (default) means 1, off.</summary>
        public float TopP { get; set; }
        /// <summary>Drop tokens less probable than this fraction of the best; [0, 1). Default 0, off.</summary>
        public float MinP { get; set; }
        /// <summary>Divides positive logits (multiplies negative ones) of recent tokens; 0 (default) means 1, off. At
        /// most 100.</summary>
        public float RepeatPenalty { get; set; }
        /// <summary>Recent tokens that the penalty looks at, at most 4096; 0 (default): 64.</summary>
        public uint RepeatLastN { get; set; }
        /// <summary>Same seed, same options, same logits: same tokens. Default 0.</summary>
        public ulong Seed { get; set; }
        /// <summary>Taken from the logits of the recent tokens, of those that repeat_last_n says; -2..2, below 0 they
        /// become likelier. Default 0.</summary>
        public float PresencePenalty { get; set; }
        /// <summary>The same, as often as each is among them. Default 0.</summary>
        public float FrequencyPenalty { get; set; }
        /// <summary>[n_bias], copied. null (default): none.</summary>
        public IDictionary<int, float> Bias { get; set; }

        internal Native.weir_sampling_options* ToNative(Arena a)
        {
            var s = (Native.weir_sampling_options*)a.New(sizeof(Native.weir_sampling_options));
            Fill(a, s);
            return s;
        }

        internal void Fill(Arena a, Native.weir_sampling_options* s)
        {
            s->struct_size = (uint)sizeof(Native.weir_sampling_options);
            s->top_k = TopK;
            s->temperature = Temperature;
            s->top_p = TopP;
            s->min_p = MinP;
            s->repeat_penalty = RepeatPenalty;
            s->repeat_last_n = RepeatLastN;
            s->seed = Seed;
            s->presence_penalty = PresencePenalty;
            s->frequency_penalty = FrequencyPenalty;
            s->bias = a.Biases(Bias, out s->n_bias);
        }
    }

    /// <summary>A token and how probable it was.</summary>
    public sealed unsafe class TokenLogprob
    {
        /// <summary>The token.</summary>
        public int Token { get; }
        /// <summary>Natural logarithm of its probability by the model's logits alone: before bias, penalties,
        /// temperature and cuts.</summary>
        public float Logprob { get; }

        internal TokenLogprob(Native.weir_logprob* s)
        {
            Token = s->token;
            Logprob = s->logprob;
        }

        internal static TokenLogprob[] ListOf(Native.weir_logprob* s, ulong n)
        {
            if (n == 0)
                return Array.Empty<TokenLogprob>();
            var all = new TokenLogprob[n];
            for (ulong i = 0; i < n; i++)
                all[i] = new TokenLogprob(s + i);
            return all;
        }
    }

    /// <summary>One generated token, for the callback of weir_session_generate.</summary>
    public sealed unsafe class TokenEvent
    {
        /// <summary>The token; -1 in a last event that only brings text which no token can complete any more.</summary>
        public int Token { get; }
        /// <summary>0 for the first token of this call.</summary>
        public uint Index { get; }
        /// <summary>Positions in the conversation before this token is appended.</summary>
        public uint TokenCount { get; }
        /// <summary>Text that is now complete, whole UTF-8 sequences, perhaps empty.</summary>
        public string Text { get; }
        /// <summary>As of weir_event.</summary>
        public float Logprob { get; }
        /// <summary>As of weir_event.</summary>
        public IReadOnlyList<TokenLogprob> Top { get; }

        internal TokenEvent(Native.weir_token_event* s)
        {
            Token = s->token;
            Index = s->index;
            TokenCount = s->n_tokens;
            Text = Utf8.Of(s->text, s->text_bytes);
            Logprob = s->logprob;
            Top = Weir.TokenLogprob.ListOf(s->top, s->n_top);
        }
    }

    /// <summary>Options of weir_session_generate and weir_session_begin.</summary>
    public sealed unsafe partial class GenerateOptions
    {
        /// <summary>WEIR_GENERATE_*.</summary>
        public GenerateFlags Flags { get; set; }
        /// <summary>Most tokens of this call; 0 (default): as many as the context holds.</summary>
        public uint MaxTokens { get; set; }
        /// <summary>null (default): none.</summary>
        public Func<TokenEvent, bool> OnToken { get; set; }
        /// <summary>[n_stop] texts of 1 to 256 bytes. The first that is complete ends the answer, wherever its tokens
        /// begin and end: its text is not shown, its tokens stay in the conversation, and text that may be the
        /// beginning of one is shown later, at the latest with the end of the call or answer. Only text counts that
        /// would be shown, and of one call or one begun answer: for pieces of an answer use weir_session_next. null
        /// (default): none.</summary>
        public IList<string> Stop { get; set; }
        /// <summary>Events tell the log-probability of their token, and this many of the most probable tokens, 0..64. 0
        /// (default): neither. A GPU sends these and sums, not all logits.</summary>
        public uint TopCount { get; set; }
        /// <summary>Before there are so many tokens, none is drawn that ends an answer (WEIR_TOKEN_END_OF_GENERATION),
        /// also with WEIR_GENERATE_IGNORE_EOS. Stop strings, max_tokens and the context end it all the same. Default
        /// 0.</summary>
        public uint MinTokens { get; set; }
        /// <summary>After so many tokens of thought its end is appended as if it had been drawn: thinking_close, then
        /// the tag. 0 (default): no limit. WEIR_ERR_UNSUPPORTED where the model has no tags of thoughts
        /// (weir_chat_info.thought_end).</summary>
        public uint ThinkingBudget { get; set; }
        /// <summary>Text that is appended before the tag where a thought is ended early, also by
        /// weir_session_finish_thinking: at most 1,024 bytes of UTF-8. Copied. Models often go on thinking aloud
        /// without one. null (default): none. WEIR_ERR_UNSUPPORTED as above.</summary>
        public string ThinkingClose { get; set; }

        internal Native.weir_generate_options* ToNative(Arena a)
        {
            var s = (Native.weir_generate_options*)a.New(sizeof(Native.weir_generate_options));
            Fill(a, s);
            return s;
        }

        internal void Fill(Arena a, Native.weir_generate_options* s)
        {
            s->struct_size = (uint)sizeof(Native.weir_generate_options);
            s->flags = (uint)Flags;
            s->max_tokens = MaxTokens;
            s->on_token = a.Token(OnToken, out s->user);
            s->stop = a.Texts(Stop, out s->n_stop);
            s->n_top = TopCount;
            s->min_tokens = MinTokens;
            s->thinking_budget = ThinkingBudget;
            s->thinking_close = a.Text("ThinkingClose", ThinkingClose);
        }
    }

    /// <summary>Result of weir_session_generate.</summary>
    public sealed unsafe class GenerateResult
    {
        /// <summary>WEIR_STOP_*.</summary>
        public StopReason Stop { get; }
        /// <summary>Tokens generated, without the one that ended the answer.</summary>
        public uint TokenCount { get; }
        /// <summary>The token that ended the answer, or the last one; -1 when there was none.</summary>
        public int LastToken { get; }
        /// <summary>Which of the texts of WEIR_STOP_STRING it was; otherwise -1.</summary>
        public int StopIndex { get; }

        internal GenerateResult(Native.weir_generate_result* s)
        {
            Stop = (StopReason)s->stop;
            TokenCount = s->n_tokens;
            LastToken = s->last_token;
            StopIndex = s->stop_index;
        }
    }

    /// <summary>One event of an answer, from weir_session_next.</summary>
    public sealed unsafe class Event
    {
        /// <summary>WEIR_EVENT_*.</summary>
        public EventKind Kind { get; }
        /// <summary>The token; of an end the one that ended the answer, which is not appended; else -1.</summary>
        public int Token { get; }
        /// <summary>Number of the token in this answer, from 0; of other events how many there were.</summary>
        public uint Index { get; }
        /// <summary>Positions in the conversation, with this token.</summary>
        public uint TokenCount { get; }
        /// <summary>Why the answer ended: WEIR_STOP_*; WEIR_STOP_NONE of other events.</summary>
        public StopReason Stop { get; }
        /// <summary>Which of the texts of WEIR_STOP_STRING it was; otherwise -1.</summary>
        public int StopIndex { get; }
        /// <summary>WEIR_SEGMENT_*: what the text is part of, or without text what the token is.</summary>
        public Segment Segment { get; }
        /// <summary>Whole UTF-8 sequences, perhaps empty.</summary>
        public string Text { get; }
        /// <summary>That of weir_logprob. NaN of other events and where n_top of the options is 0.</summary>
        public float Logprob { get; }
        /// <summary>[n_top], the most probable first, of equals the lower id; the token itself need not be among them.
        /// null where n_top is 0.</summary>
        public IReadOnlyList<TokenLogprob> Top { get; }

        internal Event(Native.weir_event* s)
        {
            Kind = (EventKind)s->kind;
            Token = s->token;
            Index = s->index;
            TokenCount = s->n_tokens;
            Stop = (StopReason)s->stop;
            StopIndex = s->stop_index;
            Segment = (Segment)s->segment;
            Text = Utf8.Of(s->text, s->text_bytes);
            Logprob = s->logprob;
            Top = Weir.TokenLogprob.ListOf(s->top, s->n_top);
        }
    }

    /// <summary>Options of weir_session_prompt and weir_session_prompt_tokens.</summary>
    public sealed unsafe partial class PromptOptions
    {
        /// <summary>WEIR_PROMPT_*.</summary>
        public PromptFlags Flags { get; set; }
        /// <summary>Positions to leave free for what follows. Default 0.</summary>
        public uint ReserveTokens { get; set; }
        /// <summary>Progress in the tokens that are read, and cancel; null (default): none.</summary>
        public Func<Progress, bool> Progress { get; set; }
        /// <summary>weir_session_prompt only: how messages are rendered; its progress must be null. null (default):
        /// WEIR_CHAT_ADD_ASSISTANT.</summary>
        public ChatOptions Chat { get; set; }

        internal Native.weir_prompt_options* ToNative(Arena a)
        {
            var s = (Native.weir_prompt_options*)a.New(sizeof(Native.weir_prompt_options));
            Fill(a, s);
            return s;
        }

        internal void Fill(Arena a, Native.weir_prompt_options* s)
        {
            s->struct_size = (uint)sizeof(Native.weir_prompt_options);
            s->flags = (uint)Flags;
            s->reserve_tokens = ReserveTokens;
            s->progress = a.Progress(Progress, out s->progress_user);
            s->chat = Chat == null ? null : Chat.ToNative(a);
        }
    }

    /// <summary>What weir_session_prompt or weir_session_prompt_tokens did.</summary>
    public sealed unsafe class PromptReport
    {
        /// <summary>Tokens of the conversation now.</summary>
        public uint TokenCount { get; }
        /// <summary>Those of the n_tokens that were there and stayed.</summary>
        public uint KeptCount { get; }
        /// <summary>The others.</summary>
        public uint ReadCount { get; }
        /// <summary>Tokens that were in the session and are no more: thoughts, edited turns.</summary>
        public uint ForgottenCount { get; }
        /// <summary>Messages left out by WEIR_PROMPT_DROP_OLDEST, those behind the system messages.</summary>
        public uint MessagesDroppedCount { get; }
        /// <summary>Pages of the kept tokens that the next one would attend and the session has lost, summed over its
        /// streams: dropped by the policy, or behind a sliding window that has moved on. With WEIR_PROMPT_MEASURE those
        /// that are lost already.</summary>
        public ulong PagesMissing { get; }

        internal PromptReport(Native.weir_prompt_report* s)
        {
            TokenCount = s->n_tokens;
            KeptCount = s->n_kept;
            ReadCount = s->n_read;
            ForgottenCount = s->n_forgotten;
            MessagesDroppedCount = s->n_messages_dropped;
            PagesMissing = s->pages_missing;
        }
    }

    /// <summary>Positions of a message's text in a conversation.</summary>
    public sealed unsafe class Span
    {
        /// <summary>Position of the first token with text of the message.</summary>
        public uint First { get; }
        /// <summary>One past the last one; equal to first where the template leaves the text out, or writes it in
        /// another way.</summary>
        public uint End { get; }

        internal Span(Native.weir_span* s)
        {
            First = s->first;
            End = s->end;
        }

        internal static Span[] ListOf(Native.weir_span* s, ulong n)
        {
            if (n == 0)
                return Array.Empty<Span>();
            var all = new Span[n];
            for (ulong i = 0; i < n; i++)
                all[i] = new Span(s + i);
            return all;
        }
    }
}
