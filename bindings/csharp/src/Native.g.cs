// The C functions and structs of libweir.
// Longer than 600 lines because generate.py writes it from include/weir.
using System;
using System.Runtime.CompilerServices;
using System.Runtime.InteropServices;

namespace Weir
{
    internal static unsafe partial class Native
    {
        internal const uint WEIR_VERSION_MAJOR = 1;
        internal const uint WEIR_VERSION_MINOR = 1;
        internal const uint WEIR_VERSION_PATCH = 0;
        internal const int WEIR_OK = 0;
        internal const int WEIR_ERR_INVALID_ARG = -1;
        internal const int WEIR_ERR_OUT_OF_MEMORY = -2;
        internal const int WEIR_ERR_IO = -3;
        internal const int WEIR_ERR_FORMAT = -4;
        internal const int WEIR_ERR_UNSUPPORTED = -5;
        internal const int WEIR_ERR_NOT_FOUND = -6;
        internal const int WEIR_ERR_CONTEXT_FULL = -7;
        internal const int WEIR_ERR_BUDGET = -8;
        internal const int WEIR_ERR_BUSY = -9;
        internal const int WEIR_ERR_CANCELLED = -10;
        internal const int WEIR_ERR_STATE = -11;
        internal const int WEIR_ERR_BUFFER_TOO_SMALL = -12;
        internal const int WEIR_ERR_DEVICE_LOST = -13;
        internal const int WEIR_ERR_INTERNAL = -14;

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        internal delegate int weir_alloc_fn(IntPtr user, weir_alloc_info* info, void** @out);

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        internal delegate int weir_free_fn(IntPtr user, weir_alloc_info* info);

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        internal delegate int weir_log_fn(IntPtr user, weir_log_info* info);

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        internal delegate int weir_progress_fn(IntPtr user, weir_progress_info* info);

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        internal delegate int weir_token_fn(IntPtr user, weir_token_event* @event);

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        internal delegate int weir_mask_fn(IntPtr user, weir_mask_info* info);

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        internal delegate int weir_write_fn(IntPtr user, weir_write_info* info);

        [UnmanagedFunctionPointer(CallingConvention.Cdecl)]
        internal delegate int weir_read_fn(IntPtr user, weir_read_info* info, ulong* n_read);

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_key_value
        {
            internal byte* key;
            internal byte* value;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_alloc_info
        {
            internal uint struct_size;
            internal int kind;
            internal ulong bytes;
            internal ulong alignment;
            internal void* ptr;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_log_info
        {
            internal uint struct_size;
            internal int level;
            internal byte* message;
            internal ulong message_bytes;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_runtime_options
        {
            internal uint struct_size;
            internal uint n_threads;
            internal IntPtr alloc;
            internal IntPtr free;
            internal void* alloc_user;
            internal IntPtr log;
            internal void* log_user;
            internal int log_level;
            internal uint reserved;
            internal byte* backend_dir;
            internal IntPtr device_alloc;
            internal IntPtr device_free;
            internal void* device_alloc_user;
            internal byte* vulkan_device;
            internal byte* cache_dir;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_memory_counters
        {
            internal uint struct_size;
            internal uint reserved;
            internal ulong bytes;
            internal ulong peak_bytes;
            internal ulong n_allocs;
            internal ulong n_frees;
            internal ulong device_bytes;
            internal ulong device_peak_bytes;
            internal ulong n_device_allocs;
            internal ulong n_device_frees;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_device_info
        {
            internal uint struct_size;
            internal uint index;
            internal int backend;
            internal int kind;
            internal uint is_usable;
            internal uint reserved;
            internal ulong memory_bytes;
            internal fixed byte name[256];
            internal fixed byte driver[128];
            internal fixed byte why_not[512];
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_progress_info
        {
            internal uint struct_size;
            internal uint reserved;
            internal ulong done;
            internal ulong total;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_model_options
        {
            internal uint struct_size;
            internal uint flags;
            internal IntPtr progress;
            internal void* progress_user;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_model_info
        {
            internal uint struct_size;
            internal uint n_layers;
            internal uint n_heads;
            internal uint n_kv_heads;
            internal uint head_dim;
            internal uint d_model;
            internal uint d_ff;
            internal uint vocab_size;
            internal uint context_tokens;
            internal uint n_tensors;
            internal ulong n_params;
            internal ulong weights_bytes;
            internal ulong file_bytes;
            internal ulong fingerprint;
            internal byte* architecture;
            internal byte* name;
            internal byte* weight_type;
            internal byte* chat_template;
            internal byte* tokenizer;
            internal ulong copied_bytes;
            internal byte* chat_resembles;
            internal uint n_parts;
            internal uint reserved;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_tensor_info
        {
            internal uint struct_size;
            internal uint n_dims;
            internal fixed ulong dims[4];
            internal ulong bytes;
            internal ulong file_offset;
            internal byte* name;
            internal byte* type;
            internal uint part;
            internal uint reserved;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_token_info
        {
            internal uint struct_size;
            internal uint flags;
            internal byte* text;
            internal ulong text_bytes;
            internal float score;
            internal uint reserved;
            internal byte* bytes;
            internal ulong n_bytes;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_special_tokens
        {
            internal uint struct_size;
            internal int bos;
            internal int eos;
            internal int eot;
            internal int unk;
            internal int pad;
            internal int add_bos;
            internal int add_eos;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_chat_message
        {
            internal byte* role;
            internal byte* content;
            internal ulong content_bytes;
            internal byte* thought;
            internal ulong thought_bytes;
            internal byte* tool_calls_json;
            internal byte* tool_call_id;
            internal byte* name;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_chat_options
        {
            internal uint struct_size;
            internal uint flags;
            internal uint message_bytes;
            internal uint reserved;
            internal IntPtr progress;
            internal void* progress_user;
            internal byte* template_text;
            internal byte* tools_json;
            internal byte* variables_json;
            internal long unix_time;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_tokenize_options
        {
            internal uint struct_size;
            internal uint flags;
            internal IntPtr progress;
            internal void* progress_user;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_chat_info
        {
            internal uint struct_size;
            internal uint can;
            internal byte* thought_begin;
            internal byte* thought_end;
            internal byte* tool_format;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_session_options
        {
            internal uint struct_size;
            internal uint flags;
            internal int device;
            internal uint context_tokens;
            internal uint batch_tokens;
            internal uint page_tokens;
            internal uint budget_tokens;
            internal uint max_prompt_tokens;
            internal ulong budget_bytes;
            internal ulong spill_budget_bytes;
            internal byte* policy;
            internal weir_key_value* policy_options;
            internal uint n_policy_options;
            internal uint reserved;
            internal ulong spill_raw_bytes;
            internal byte* spill_path;
            internal ulong spill_file_bytes;
            internal uint spill_flags;
            internal uint reserved_spill;
            internal ulong snapshot_budget_bytes;
            internal uint snapshot_tokens;
            internal int kv_format;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_plan_info
        {
            internal uint struct_size;
            internal uint context_tokens;
            internal uint budget_tokens;
            internal uint page_tokens;
            internal uint pages_per_stream;
            internal uint n_streams;
            internal ulong page_bytes;
            internal ulong weights_bytes;
            internal ulong kv_bytes;
            internal ulong digest_bytes;
            internal ulong table_bytes;
            internal ulong workspace_bytes;
            internal ulong sampler_bytes;
            internal ulong session_bytes;
            internal ulong staging_bytes;
            internal ulong spill_bytes;
            internal ulong library_bytes;
            internal ulong total_bytes;
            internal ulong device_bytes;
            internal ulong device_weights_bytes;
            internal int device;
            internal uint reserved;
            internal uint n_window_streams;
            internal uint window_pages_per_stream;
            internal ulong window_kv_bytes;
            internal ulong spill_file_bytes;
            internal uint n_head_streams;
            internal uint head_pages_per_stream;
            internal ulong head_kv_bytes;
            internal ulong spill_raw_bytes;
            internal ulong spill_compressed_bytes;
            internal uint spill_tokens;
            internal uint reserved_spill;
            internal ulong recurrent_bytes;
            internal ulong snapshot_bytes;
            internal uint n_snapshots;
            internal uint snapshot_tokens;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_memory_info
        {
            internal uint struct_size;
            internal uint reserved;
            internal ulong plan_bytes;
            internal ulong bytes;
            internal ulong peak_bytes;
            internal ulong kv_budget_bytes;
            internal ulong kv_bytes;
            internal ulong kv_peak_bytes;
            internal ulong n_allocs;
            internal ulong allocs_while_decoding;
            internal ulong device_bytes;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_session_stats
        {
            internal uint struct_size;
            internal uint n_tokens;
            internal ulong n_prompt;
            internal ulong n_decode;
            internal ulong pages_resident;
            internal ulong pages_resident_max;
            internal ulong pages_evicted;
            internal ulong pages_spilled;
            internal ulong pages_recalled;
            internal ulong pages_dropped;
            internal ulong prefill_ns;
            internal ulong decode_ns;
            internal ulong pages_attended;
            internal ulong pages_cold;
            internal ulong spill_stored_bytes;
            internal ulong recall_ns;
            internal ulong spill_waits;
            internal ulong spill_errors;
            internal ulong spill_pages_raw;
            internal ulong spill_restored;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_token_bias
        {
            internal int token;
            internal float bias;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_page_state
        {
            internal ushort resident;
            internal ushort cold;
            internal ushort lost;
            internal ushort pinned;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_sampling_options
        {
            internal uint struct_size;
            internal uint top_k;
            internal float temperature;
            internal float top_p;
            internal float min_p;
            internal float repeat_penalty;
            internal uint repeat_last_n;
            internal uint reserved;
            internal ulong seed;
            internal float presence_penalty;
            internal float frequency_penalty;
            internal weir_token_bias* bias;
            internal uint n_bias;
            internal uint reserved2;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_logprob
        {
            internal int token;
            internal float logprob;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_token_event
        {
            internal uint struct_size;
            internal int token;
            internal uint index;
            internal uint n_tokens;
            internal byte* text;
            internal ulong text_bytes;
            internal float logprob;
            internal uint n_top;
            internal weir_logprob* top;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_text
        {
            internal byte* text;
            internal ulong bytes;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_generate_options
        {
            internal uint struct_size;
            internal uint flags;
            internal uint max_tokens;
            internal uint reserved;
            internal IntPtr on_token;
            internal void* user;
            internal weir_text* stop;
            internal uint n_stop;
            internal uint n_top;
            internal uint min_tokens;
            internal uint thinking_budget;
            internal byte* thinking_close;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_generate_result
        {
            internal uint struct_size;
            internal int stop;
            internal uint n_tokens;
            internal int last_token;
            internal int stop_index;
            internal uint reserved;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_event
        {
            internal uint struct_size;
            internal int kind;
            internal int token;
            internal uint index;
            internal uint n_tokens;
            internal int stop;
            internal int stop_index;
            internal int segment;
            internal byte* text;
            internal ulong text_bytes;
            internal float logprob;
            internal uint n_top;
            internal weir_logprob* top;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_prompt_options
        {
            internal uint struct_size;
            internal uint flags;
            internal uint reserve_tokens;
            internal uint reserved;
            internal IntPtr progress;
            internal void* progress_user;
            internal weir_chat_options* chat;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_prompt_report
        {
            internal uint struct_size;
            internal uint n_tokens;
            internal uint n_kept;
            internal uint n_read;
            internal uint n_forgotten;
            internal uint n_messages_dropped;
            internal ulong pages_missing;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_span
        {
            internal uint first;
            internal uint end;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_mask_info
        {
            internal uint struct_size;
            internal uint vocab_size;
            internal uint n_tokens;
            internal uint reserved;
            internal int* tokens;
            internal uint* words;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_write_info
        {
            internal uint struct_size;
            internal uint reserved;
            internal ulong offset;
            internal ulong n_bytes;
            internal void* data;
        }

        [StructLayout(LayoutKind.Sequential)]
        internal struct weir_read_info
        {
            internal uint struct_size;
            internal uint reserved;
            internal ulong offset;
            internal ulong n_bytes;
            internal void* data;
        }

#if NET8_0_OR_GREATER
        internal const string Name = "weir";
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial uint weir_version();
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial byte* weir_version_string();
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial byte* weir_status_name(int status);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial byte* weir_last_error();
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_cancel_create(IntPtr* @out);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial IntPtr weir_cancel_retain(IntPtr cancel);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial void weir_cancel_release(IntPtr cancel);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial void weir_cancel_set(IntPtr cancel);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial void weir_cancel_clear(IntPtr cancel);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial IntPtr weir_get_experimental(byte* name);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_runtime_options_init(weir_runtime_options* options, uint struct_size);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_runtime_create(weir_runtime_options* options, IntPtr* @out);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial void weir_runtime_destroy(IntPtr runtime);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_runtime_memory(IntPtr runtime, weir_memory_counters* counters);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial uint weir_runtime_thread_count(IntPtr runtime);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial byte* weir_runtime_cpu_target(IntPtr runtime);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_runtime_devices(IntPtr runtime, weir_device_info* devices, uint capacity, uint*
            n_devices);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_model_options_init(weir_model_options* options, uint struct_size);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_model_open(IntPtr runtime, byte* path, weir_model_options* options, IntPtr*
            @out);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial void weir_model_close(IntPtr model);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_model_get_info(IntPtr model, weir_model_info* info);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_model_tensor_info(IntPtr model, uint index, weir_tensor_info* info);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial uint weir_model_metadata_count(IntPtr model);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_model_metadata(IntPtr model, uint index, byte** key, byte* value, ulong
            capacity, ulong* value_bytes);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial byte* weir_weight_type_name(uint index);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_tokenize(IntPtr model, byte* text, ulong text_bytes, uint flags, int* tokens,
            ulong capacity, ulong* n_tokens);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_tokenize_options_init(weir_tokenize_options* options, uint struct_size);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_tokenize_with(IntPtr model, byte* text, ulong text_bytes,
            weir_tokenize_options* options, int* tokens, ulong capacity, ulong* n_tokens);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_detokenize(IntPtr model, int* tokens, ulong n_tokens, uint flags, byte* text,
            ulong capacity, ulong* text_bytes);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_detokenizer_create(IntPtr model, uint flags, IntPtr* @out);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_detokenizer_push(IntPtr detokenizer, int token, byte** text, ulong*
            text_bytes);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_detokenizer_flush(IntPtr detokenizer, byte** text, ulong* text_bytes);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial void weir_detokenizer_destroy(IntPtr detokenizer);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_token_get_info(IntPtr model, int token, weir_token_info* info);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_model_special_tokens(IntPtr model, weir_special_tokens* special);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_model_chat_info(IntPtr model, weir_chat_info* info);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_chat_options_init(weir_chat_options* options, uint struct_size);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_chat_tokenize(IntPtr model, weir_chat_message* messages, ulong n_messages,
            weir_chat_options* options, int* tokens, ulong capacity, ulong* n_tokens);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_chat_render_with(IntPtr model, weir_chat_message* messages, ulong n_messages,
            weir_chat_options* options, byte* text, ulong capacity, ulong* text_bytes);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_chat_render(IntPtr model, weir_chat_message* messages, ulong n_messages, uint
            flags, byte* text, ulong capacity, ulong* text_bytes);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_template_render(IntPtr runtime, byte* template_text, ulong template_bytes,
            byte* variables_json, ulong variables_bytes, long unix_time, byte* text, ulong capacity, ulong* text_bytes);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_options_init(weir_session_options* options, uint struct_size);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_options_preset(byte* name, weir_session_options* options);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_sampling_options_init(weir_sampling_options* options, uint struct_size);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_generate_options_init(weir_generate_options* options, uint struct_size);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_plan(IntPtr model, weir_session_options* options, weir_plan_info* plan);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_options_fit(IntPtr model, ulong bytes, weir_session_options* options);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial byte* weir_policy_name(uint index);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial byte* weir_preset_name(uint index);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_create(IntPtr model, weir_session_options* options, IntPtr* @out);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_fork(IntPtr session, IntPtr* @out);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial void weir_session_destroy(IntPtr session);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_reset(IntPtr session);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_prefill(IntPtr session, int* tokens, ulong n_tokens, IntPtr progress,
            IntPtr progress_user);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_rewind(IntPtr session, uint n_tokens, uint flags);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_prompt_tokens(IntPtr session, int* tokens, ulong n_tokens,
            weir_prompt_options* options, weir_prompt_report* report);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_prompt(IntPtr session, weir_chat_message* messages, ulong n_messages,
            weir_prompt_options* options, weir_span* spans, weir_prompt_report* report);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_step(IntPtr session, int token);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_step_many(IntPtr* sessions, int* tokens, uint n_sessions);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_logits(IntPtr session, float** logits, uint* n_logits);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_tokens(IntPtr session, int** tokens, uint* n_tokens);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_set_sampling(IntPtr session, weir_sampling_options* options);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_sample(IntPtr session, int* token);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_generate(IntPtr session, weir_generate_options* options,
            weir_generate_result* result);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_begin(IntPtr session, weir_generate_options* options);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_next(IntPtr session, weir_event* @event);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_next_many(IntPtr* sessions, weir_event* events, uint n_sessions, uint*
            n_running);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial void weir_session_finish_thinking(IntPtr session);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_answer(IntPtr session, weir_chat_message* message, uint message_bytes,
            uint* is_malformed);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_pin(IntPtr session, uint first, uint end);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_unpin(IntPtr session, uint first, uint end);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial void weir_session_cancel(IntPtr session);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial void weir_session_clear_cancel(IntPtr session);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_set_cancel(IntPtr session, IntPtr cancel);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_pages(IntPtr session, weir_page_state* pages, uint capacity, uint*
            n_pages);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_get_stats(IntPtr session, weir_session_stats* stats);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_memory(IntPtr session, weir_memory_info* info);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_set_token_mask(IntPtr session, IntPtr fn, IntPtr user);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_constraint_create(IntPtr model, int kind, byte* text, ulong text_bytes, IntPtr*
            @out);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial void weir_constraint_destroy(IntPtr constraint);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_set_constraint(IntPtr session, IntPtr constraint, uint segments);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_save(IntPtr session, IntPtr write, IntPtr user);
        [LibraryImport(Name), UnmanagedCallConv(CallConvs = new[] { typeof(CallConvCdecl) })]
        internal static partial int weir_session_restore(IntPtr session, IntPtr read, IntPtr user);
#else
        internal const string Name = "libweir.so.1";
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern uint weir_version();
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern byte* weir_version_string();
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern byte* weir_status_name(int status);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern byte* weir_last_error();
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_cancel_create(IntPtr* @out);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern IntPtr weir_cancel_retain(IntPtr cancel);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern void weir_cancel_release(IntPtr cancel);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern void weir_cancel_set(IntPtr cancel);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern void weir_cancel_clear(IntPtr cancel);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern IntPtr weir_get_experimental(byte* name);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_runtime_options_init(weir_runtime_options* options, uint struct_size);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_runtime_create(weir_runtime_options* options, IntPtr* @out);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern void weir_runtime_destroy(IntPtr runtime);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_runtime_memory(IntPtr runtime, weir_memory_counters* counters);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern uint weir_runtime_thread_count(IntPtr runtime);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern byte* weir_runtime_cpu_target(IntPtr runtime);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_runtime_devices(IntPtr runtime, weir_device_info* devices, uint capacity, uint*
            n_devices);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_model_options_init(weir_model_options* options, uint struct_size);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_model_open(IntPtr runtime, byte* path, weir_model_options* options, IntPtr*
            @out);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern void weir_model_close(IntPtr model);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_model_get_info(IntPtr model, weir_model_info* info);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_model_tensor_info(IntPtr model, uint index, weir_tensor_info* info);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern uint weir_model_metadata_count(IntPtr model);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_model_metadata(IntPtr model, uint index, byte** key, byte* value, ulong
            capacity, ulong* value_bytes);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern byte* weir_weight_type_name(uint index);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_tokenize(IntPtr model, byte* text, ulong text_bytes, uint flags, int* tokens,
            ulong capacity, ulong* n_tokens);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_tokenize_options_init(weir_tokenize_options* options, uint struct_size);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_tokenize_with(IntPtr model, byte* text, ulong text_bytes, weir_tokenize_options*
            options, int* tokens, ulong capacity, ulong* n_tokens);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_detokenize(IntPtr model, int* tokens, ulong n_tokens, uint flags, byte* text,
            ulong capacity, ulong* text_bytes);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_detokenizer_create(IntPtr model, uint flags, IntPtr* @out);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_detokenizer_push(IntPtr detokenizer, int token, byte** text, ulong* text_bytes);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_detokenizer_flush(IntPtr detokenizer, byte** text, ulong* text_bytes);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern void weir_detokenizer_destroy(IntPtr detokenizer);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_token_get_info(IntPtr model, int token, weir_token_info* info);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_model_special_tokens(IntPtr model, weir_special_tokens* special);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_model_chat_info(IntPtr model, weir_chat_info* info);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_chat_options_init(weir_chat_options* options, uint struct_size);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_chat_tokenize(IntPtr model, weir_chat_message* messages, ulong n_messages,
            weir_chat_options* options, int* tokens, ulong capacity, ulong* n_tokens);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_chat_render_with(IntPtr model, weir_chat_message* messages, ulong n_messages,
            weir_chat_options* options, byte* text, ulong capacity, ulong* text_bytes);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_chat_render(IntPtr model, weir_chat_message* messages, ulong n_messages, uint
            flags, byte* text, ulong capacity, ulong* text_bytes);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_template_render(IntPtr runtime, byte* template_text, ulong template_bytes, byte*
            variables_json, ulong variables_bytes, long unix_time, byte* text, ulong capacity, ulong* text_bytes);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_options_init(weir_session_options* options, uint struct_size);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_options_preset(byte* name, weir_session_options* options);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_sampling_options_init(weir_sampling_options* options, uint struct_size);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_generate_options_init(weir_generate_options* options, uint struct_size);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_plan(IntPtr model, weir_session_options* options, weir_plan_info* plan);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_options_fit(IntPtr model, ulong bytes, weir_session_options* options);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern byte* weir_policy_name(uint index);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern byte* weir_preset_name(uint index);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_create(IntPtr model, weir_session_options* options, IntPtr* @out);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_fork(IntPtr session, IntPtr* @out);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern void weir_session_destroy(IntPtr session);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_reset(IntPtr session);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_prefill(IntPtr session, int* tokens, ulong n_tokens, IntPtr progress,
            IntPtr progress_user);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_rewind(IntPtr session, uint n_tokens, uint flags);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_prompt_tokens(IntPtr session, int* tokens, ulong n_tokens,
            weir_prompt_options* options, weir_prompt_report* report);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_prompt(IntPtr session, weir_chat_message* messages, ulong n_messages,
            weir_prompt_options* options, weir_span* spans, weir_prompt_report* report);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_step(IntPtr session, int token);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_step_many(IntPtr* sessions, int* tokens, uint n_sessions);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_logits(IntPtr session, float** logits, uint* n_logits);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_tokens(IntPtr session, int** tokens, uint* n_tokens);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_set_sampling(IntPtr session, weir_sampling_options* options);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_sample(IntPtr session, int* token);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_generate(IntPtr session, weir_generate_options* options,
            weir_generate_result* result);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_begin(IntPtr session, weir_generate_options* options);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_next(IntPtr session, weir_event* @event);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_next_many(IntPtr* sessions, weir_event* events, uint n_sessions, uint*
            n_running);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern void weir_session_finish_thinking(IntPtr session);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_answer(IntPtr session, weir_chat_message* message, uint message_bytes,
            uint* is_malformed);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_pin(IntPtr session, uint first, uint end);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_unpin(IntPtr session, uint first, uint end);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern void weir_session_cancel(IntPtr session);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern void weir_session_clear_cancel(IntPtr session);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_set_cancel(IntPtr session, IntPtr cancel);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_pages(IntPtr session, weir_page_state* pages, uint capacity, uint*
            n_pages);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_get_stats(IntPtr session, weir_session_stats* stats);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_memory(IntPtr session, weir_memory_info* info);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_set_token_mask(IntPtr session, IntPtr fn, IntPtr user);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_constraint_create(IntPtr model, int kind, byte* text, ulong text_bytes, IntPtr*
            @out);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern void weir_constraint_destroy(IntPtr constraint);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_set_constraint(IntPtr session, IntPtr constraint, uint segments);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_save(IntPtr session, IntPtr write, IntPtr user);
        [DllImport(Name, CallingConvention = CallingConvention.Cdecl, ExactSpelling = true)]
        internal static extern int weir_session_restore(IntPtr session, IntPtr read, IntPtr user);
#endif
    }
}
