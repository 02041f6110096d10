#![doc = include_str!("../README.md")]
#![deny(unsafe_op_in_unsafe_fn, missing_docs)]
#[rustfmt::skip]
mod generated;
mod model;
mod options;
mod runtime;
mod session;
pub use session::{next_many, step_many, Events, Prompted, Session, TokenMask};
pub use {generated::*, model::Detokenizer, options::Progress, runtime::Memory, weir_sys as sys};

use options::{progress_of, raw_messages, set_bits, Texts};
use runtime::Hooks;
use std::ffi::{c_char, CStr};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::{any::Any, borrow::Cow, cell::Cell, fmt, ops::ControlFlow, ptr, sync::Arc};

/// What a call gives.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed. What it would have changed is as before, unless its documentation says otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What kind of failure it is.
    pub status: Status,
    /// One line that names the file, tensor, key, option or byte count at fault.
    pub text: String,
}
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.text, self.status)
    }
}
impl std::error::Error for Error {}
fn invalid(text: String) -> Error {
    Error { status: Status::INVALID_ARG, text }
}
impl From<sys::LoadError> for Error {
    fn from(error: sys::LoadError) -> Error {
        Error { status: if error.is_other_version { Status::UNSUPPORTED } else { Status::NOT_FOUND }, text: error.text }
    }
}

/// The version of the library that is loaded, such as "1.1.0".
pub fn version() -> Result<Cow<'static, str>> {
    sys::load()?;
    Ok(unsafe { text(sys::weir_version_string()) })
}

impl Cancel {
    /// A cancel that is not set. It may outlive the sessions that [look at it](Session::set_cancel).
    pub fn new() -> Result<Cancel> {
        sys::load()?;
        Cancel::made((), |out| unsafe { sys::weir_cancel_create(out) })
    }
}

/// An object of the library, and what must live as long as it does: `keep` is dropped after it.
struct Handle<T, K> {
    raw: *mut T,
    destroy: fn(*mut T),
    keep: K,
}
impl<T, K> Handle<T, K> {
    fn new(keep: K, destroy: fn(*mut T), create: impl FnOnce(*mut *mut T) -> sys::weir_status) -> Result<Self> {
        let mut handle = Handle { raw: ptr::null_mut(), destroy, keep };
        check(create(&mut handle.raw)).map(|()| handle)
    }
}
/// Objects that threads share.
///
/// # Safety
///
/// Any number of threads may call their functions.
unsafe trait Shared {}
// SAFETY: that is what it says, and `keep` may be shared as well.
unsafe impl<T: Shared, K: Send + Sync> Send for Handle<T, K> {}
unsafe impl<T: Shared, K: Send + Sync> Sync for Handle<T, K> {}
impl<T, K> Drop for Handle<T, K> {
    fn drop(&mut self) {
        (self.destroy)(self.raw)
    }
}

thread_local! {
    /// The panic that ended a callback of the call that runs on this thread.
    static PANIC: Cell<Option<Box<dyn Any + Send>>> = const { Cell::new(None) };
}
/// Runs a callback of the library, which says whether to go on. No panic may cross it; `check` goes on with that.
fn guard(callback: impl FnOnce() -> bool) -> sys::weir_status {
    match catch_unwind(AssertUnwindSafe(callback)) {
        Ok(true) => return sys::WEIR_OK,
        Ok(false) => {}
        Err(panic) => PANIC.set(Some(panic)),
    }
    sys::WEIR_ERR_CANCELLED
}
/// The result of a call that has just returned on this thread.
#[inline]
fn check(status: sys::weir_status) -> Result<()> {
    (status == sys::WEIR_OK).then_some(()).ok_or_else(|| failure(status))
}
#[cold]
fn failure(status: sys::weir_status) -> Error {
    if let Some(panic) = PANIC.take() {
        resume_unwind(panic);
    }
    Error { status: Status(status), text: unsafe { text(sys::weir_last_error()) }.into_owned() }
}

/// What a function fills in.
fn get<T: Default>(call: impl FnOnce(*mut T) -> sys::weir_status) -> Result<T> {
    let mut value = T::default();
    check(call(&mut value)).map(|()| value)
}
/// A list whose length only the library knows, from a guess of it.
fn list<T, N>(guess: usize, call: impl Fn(*mut T, N, *mut N) -> sys::weir_status) -> Result<Vec<T>>
where
    N: Default + TryFrom<usize> + TryInto<usize>,
{
    let mut list = Vec::with_capacity(guess);
    loop {
        let mut n = N::default();
        let status = call(list.as_mut_ptr(), list.capacity().try_into().unwrap_or_default(), &mut n);
        let n = n.try_into().unwrap_or_default();
        if status != sys::WEIR_ERR_BUFFER_TOO_SMALL || n < list.capacity() {
            check(status)?;
            // SAFETY: the call has written so many.
            unsafe { list.set_len(n) };
            return Ok(list);
        }
        list.reserve_exact(n + 1); // with the NUL that some texts have
    }
}
/// The names that a function has for 0 and on; they are static.
fn names(name: impl Fn(u32) -> *const c_char) -> Vec<Cow<'static, str>> {
    (0..).map(name).take_while(|name| !name.is_null()).map(|name| unsafe { text(name) }).collect()
}
/// A text of the library, which lives for `'a`.
unsafe fn text<'a>(text: *const c_char) -> Cow<'a, str> {
    unsafe { text.as_ref().map_or(Cow::Borrowed(""), |text| CStr::from_ptr(text).to_string_lossy()) }
}
/// A list of the library, which lives for `'a`.
unsafe fn slice<'a, T>(first: *const T, n: u64) -> &'a [T] {
    unsafe { first.as_ref().map_or(&[], |_| std::slice::from_raw_parts(first, n as usize)) }
}
/// A copy of a text of the library.
unsafe fn string(first: *const c_char, n: u64) -> String {
    let bytes = unsafe { slice(first.cast(), n) };
    std::str::from_utf8(bytes).map_or_else(|_| String::from_utf8_lossy(bytes).into_owned(), str::to_owned)
}
/// A copy of a text. A short one is not allocated. An allocation would cost more than all else of an event, because
/// after a step of the model the allocator's data are no longer in the processor's caches.
#[derive(Clone)]
enum Text {
    Short(u8, [u8; 30]),
    Long(String),
}
impl Text {
    fn new(bytes: &[u8]) -> Text {
        let (mut short, mut bits) = ([0; 30], 0);
        for (to, from) in short.iter_mut().zip(bytes) {
            (*to, bits) = (*from, bits | *from);
        }
        if bytes.len() <= short.len() && (bits < 128 || std::str::from_utf8(bytes).is_ok()) {
            return Text::Short(bytes.len() as u8, short);
        }
        Text::Long(String::from_utf8_lossy(bytes).into_owned())
    }
    fn get(&self) -> &str {
        match self {
            // SAFETY: `new` has looked.
            Text::Short(n, bytes) => unsafe { std::str::from_utf8_unchecked(&bytes[..usize::from(*n)]) },
            Text::Long(text) => text,
        }
    }
}
impl fmt::Debug for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}
/// Bytes of the library that are UTF-8 if what it was given is.
fn utf8(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}
