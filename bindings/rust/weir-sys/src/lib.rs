//! Declarations of the C API of Weir, as in its headers. The crate `weir` is the safe
//! layer over them.
//!
//! Names are those of C. Each enum is a type with a constant for each value, `weir_stop_reason::EOS`, and there are C's
//! constants, `WEIR_STOP_EOS`; fields and arguments stay `i32` and `u32`. `Default` of a struct is zero bytes with
//! `struct_size`, which is valid wherever the caller makes one.
//!
//! The declarations are written by `generate.py` from `include/weir/*.h`; a test compares layouts and numbers with
//! those of the C compiler.
//!
//! # Features
//!
//! - none: links the shared library that `WEIR_DIR` or pkg-config names
//! - `static`: links `libweir.a`
//! - `dlopen`: links nothing, see [`load`]
#![deny(unsafe_op_in_unsafe_fn, missing_docs)]
#![allow(non_camel_case_types)]

use core::ffi::{c_char, c_void};
use core::fmt;
use core::marker::{PhantomData, PhantomPinned};

#[cfg(all(feature = "dlopen", not(unix)))]
compile_error!("the feature dlopen is for systems that have dlopen");
#[cfg(all(feature = "dlopen", feature = "static"))]
compile_error!("the features dlopen and static exclude each other");

#[cfg(test)]
mod against_headers;
#[cfg(feature = "dlopen")]
mod loader;
#[cfg(feature = "dlopen")]
pub use loader::{load, load_from};

/// Content of a type that C knows by name only: nothing to copy, move out of or send.
#[repr(C)]
struct Opaque {
    _nothing: [u8; 0],
    _marker: PhantomData<(*mut u8, PhantomPinned)>,
}

macro_rules! constants {
    ($($(#[$doc:meta])* $name:ident: $kind:ident = $number:expr;)*) => {
        $($(#[$doc])* pub const $name: $kind = $number;)*

        /// Names and numbers, for the comparison with C.
        #[cfg(test)]
        const CONSTANTS: &[(&str, i64)] = &[$((stringify!($name), $number)),*];
    };
}

macro_rules! enumerations {
    ($($(#[$doc:meta])* $name:ident: $kind:ident {
        $($(#[$value_doc:meta])* $value:ident as $short:ident = $number:expr;)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
            #[repr(transparent)]
            pub struct $name(pub $kind);
            impl $name {
                $($(#[$value_doc])* pub const $short: $name = $name($number);)*
                /// Whether all bits of `other` are set; of numbers, whether it is that one.
                pub const fn contains(self, other: $name) -> bool {
                    self.0 & other.0 == other.0
                }
            }
            impl From<$name> for $kind {
                fn from(value: $name) -> $kind {
                    value.0
                }
            }
            impl fmt::Debug for $name {
                fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                    match *self {
                        $($name::$short => f.write_str(stringify!($short)),)*
                        _ => write!(f, "{}({})", stringify!($name), self.0),
                    }
                }
            }
            $($(#[$value_doc])* pub const $value: $kind = $number;)*
        )*

        /// Names and numbers, for the comparison with C.
        #[cfg(test)]
        const VALUES: &[(&str, i64)] = &[$($((stringify!($value), $value as i64)),*),*];
    };
}

macro_rules! structures {
    ($($(#[$doc:meta])* $name:ident $(with $size:ident)? {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug)]
            #[repr(C)]
            pub struct $name { $($(#[$field_doc])* pub $field: $type,)* }
            $(impl Default for $name {
                fn default() -> Self {
                    // SAFETY: numbers, raw pointers, arrays of numbers and optional functions may all be zero bytes.
                    let mut zero: Self = unsafe { core::mem::zeroed() };
                    zero.$size = size_of::<Self>() as u32;
                    zero
                }
            })?
        )*

        /// Names, sizes, and the fields' names, offsets and sizes, for the comparison with C.
        #[cfg(test)]
        const LAYOUTS: &[(&str, usize, &[(&str, usize, usize)])] = &[$((stringify!($name), size_of::<$name>(), &[$(
            (stringify!($field), core::mem::offset_of!($name, $field), size_of::<$type>())
        ),*])),*];
    };
}

#[cfg(not(feature = "dlopen"))]
macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        extern "C" { $($(#[$doc])* pub fn $name($($argument: $type),*) $(-> $result)?;)* }
    };
}

#[cfg(feature = "dlopen")]
macro_rules! functions {
    ($($(#[$doc:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $(-> $result:ty)?;)*) => {
        /// The functions of a library that was loaded.
        struct Functions { $($name: unsafe extern "C" fn($($type),*) $(-> $result)?,)* }
        impl Functions {
            /// All of them by `find`, which says why one is not there.
            ///
            /// # Safety
            /// What `find` gives is the function of that name.
            unsafe fn find(find: impl Fn(&core::ffi::CStr) -> Result<*mut c_void, String>) -> Result<Self, String> {
                $(let $name = {
                    const NAME: &str = concat!(stringify!($name), "\0");
                    find(core::ffi::CStr::from_bytes_with_nul(NAME.as_bytes()).unwrap_or_default())?
                };)*
                // SAFETY: the caller's promise; an address from dlsym is a function's.
                Ok(unsafe { Functions { $($name: core::mem::transmute::<*mut c_void,
                    unsafe extern "C" fn($($type),*) $(-> $result)?>($name),)* } })
            }
        }
        $($(#[$doc])* #[allow(clippy::too_many_arguments)] pub unsafe fn $name($($argument: $type),*) $(-> $result)? {
            // SAFETY: the caller's promise.
            unsafe { (loader::functions().$name)($($argument),*) }
        })*
    };
}

include!("bindings.rs");

/// Why the library cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// What was looked at, with the reasons.
    pub text: String,
    /// A library was there, but of another version.
    pub is_other_version: bool,
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for LoadError {}

/// What is wrong with a library of this version; all is well with those of one major version that are not older.
fn other_version(version: u32) -> Option<String> {
    let (major, minor) = (version >> 16, version >> 8 & 0xff);
    if major == WEIR_VERSION_MAJOR && minor >= WEIR_VERSION_MINOR {
        return None;
    }
    let wanted = format!("{WEIR_VERSION_MAJOR}.{WEIR_VERSION_MINOR}.{WEIR_VERSION_PATCH}");
    Some(format!("the library is Weir {major}.{minor}.{}, these bindings are for Weir {wanted}", version & 0xff))
}

/// Checks the version of the library that is linked.
#[cfg(not(feature = "dlopen"))]
pub fn load() -> Result<(), LoadError> {
    // SAFETY: any thread may call it.
    match other_version(unsafe { weir_version() }) {
        None => Ok(()),
        Some(text) => Err(LoadError { text, is_other_version: true }),
    }
}
