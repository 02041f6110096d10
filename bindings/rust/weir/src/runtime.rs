//! The runtime: worker threads, memory and log lines.
use crate::*;
use std::alloc::Layout;
use std::ffi::c_void;

/// Memory for a runtime and all that is made from it. It is called on any thread; a panic is a refusal.
///
/// # Safety
///
/// `allocate` gives null or memory of that kind and layout, which nobody else has and which stays until it is released.
pub unsafe trait Memory: Send + Sync {
    /// Memory of at least 1 byte, or null to refuse: the call that needed it fails.
    fn allocate(&self, kind: MemoryKind, layout: Layout) -> *mut u8;
    /// Takes memory back.
    ///
    /// # Safety
    ///
    /// `allocate` gave it, for this kind and layout, and nobody uses it any more.
    unsafe fn release(&self, kind: MemoryKind, memory: *mut u8, layout: Layout);
}

type Log = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// What a runtime calls. The library has its address.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) log: Option<Log>,
    pub(crate) host: Option<Arc<dyn Memory>>,
    pub(crate) device: Option<Arc<dyn Memory>>,
}

// SAFETY of these: `user` is set by Runtime::new, and the rest is what the library says.
unsafe extern "C" fn on_log(user: *mut c_void, info: *const sys::weir_log_info) -> sys::weir_status {
    let (log, info) = unsafe { (&*user.cast::<Log>(), &*info) };
    let _ = catch_unwind(AssertUnwindSafe(|| log(LogLevel(info.level), &unsafe { text(info.message) })));
    sys::WEIR_OK
}
unsafe fn request<'a, T>(
    (user, info): (*mut c_void, *const sys::weir_alloc_info),
    answer: impl FnOnce(&'a dyn Memory, MemoryKind, Layout) -> T,
) -> Option<T> {
    let (memory, info) = unsafe { (&*user.cast::<Arc<dyn Memory>>(), &*info) };
    let layout = Layout::from_size_align(info.bytes as usize, info.alignment as usize).ok()?;
    catch_unwind(AssertUnwindSafe(|| answer(memory.as_ref(), MemoryKind(info.kind), layout))).ok()
}
unsafe extern "C" fn on_alloc(user: *mut c_void, info: *const sys::weir_alloc_info, out: *mut *mut c_void) -> i32 {
    let given = unsafe { request((user, info), |memory, kind, layout| memory.allocate(kind, layout)) };
    let given = given.unwrap_or(ptr::null_mut());
    unsafe { *out = given.cast() };
    sys::WEIR_ERR_OUT_OF_MEMORY * i32::from(given.is_null())
}
unsafe extern "C" fn on_free(user: *mut c_void, info: *const sys::weir_alloc_info) -> sys::weir_status {
    unsafe { request((user, info), |memory, kind, layout| memory.release(kind, (*info).ptr.cast(), layout)) };
    sys::WEIR_OK
}

impl Runtime {
    /// Starts the worker threads.
    pub fn new(options: &RuntimeOptions) -> Result<Runtime> {
        sys::load()?;
        let (mut raw, hooks) = (options.ready()?, options.more.clone());
        if let Some(log) = &hooks.log {
            raw.log = Some(on_log);
            raw.log_user = ptr::from_ref(log).cast_mut().cast();
        }
        if let Some(memory) = &hooks.host {
            raw.alloc = Some(on_alloc);
            raw.free = Some(on_free);
            raw.alloc_user = ptr::from_ref(memory).cast_mut().cast();
        }
        if let Some(memory) = &hooks.device {
            raw.device_alloc = Some(on_alloc);
            raw.device_free = Some(on_free);
            raw.device_alloc_user = ptr::from_ref(memory).cast_mut().cast();
        }
        Runtime::made(hooks, |out| unsafe { sys::weir_runtime_create(&raw, out) })
    }
}
