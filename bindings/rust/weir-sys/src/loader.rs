//! The library at run time, by dlopen.
use super::{other_version, Functions, LoadError};
use std::ffi::{c_char, c_int, c_void, CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

#[cfg_attr(any(target_os = "linux", target_os = "android"), link(name = "dl"))]
extern "C" {
    fn dlopen(name: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
    fn dlclose(library: *mut c_void) -> c_int;
    fn dlerror() -> *mut c_char;
}

const RTLD_NOW: c_int = 2;

/// The file's name in the loader's folders.
#[cfg(target_vendor = "apple")]
const NAME: &str = concat!("libweir.", env!("CARGO_PKG_VERSION_MAJOR"), ".dylib");
#[cfg(not(target_vendor = "apple"))]
const NAME: &str = concat!("libweir.so.", env!("CARGO_PKG_VERSION_MAJOR"));

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// The functions of the library; loads it if nobody has.
///
/// # Panics
///
/// If there is none: call [`load`] first.
pub(crate) fn functions() -> &'static Functions {
    if let Some(functions) = FUNCTIONS.get() {
        return functions;
    }
    if let Err(error) = load() {
        panic!("{error}");
    }
    FUNCTIONS.get().unwrap_or_else(|| unreachable!())
}

/// Loads the library, once. Where the environment variable `WEIR_LIBRARY` names a file, it is that one, else where
/// `WEIR_DIR` names a folder, the one in its `lib`, and no other: who names one means that one. Else it is looked for
/// beside the program, in `lib` beside the program's folder, and where the system's loader looks. The error lists the
/// places, and why each was not taken.
pub fn load() -> Result<(), LoadError> {
    load_from(&places())
}

fn places() -> Vec<PathBuf> {
    let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(file) = named("WEIR_LIBRARY") {
        return vec![file];
    }
    if let Some(folder) = named("WEIR_DIR") {
        return vec![folder.join("lib").join(NAME)];
    }
    let mut places = Vec::new();
    if let Some(folder) = std::env::current_exe().ok().and_then(|program| program.parent().map(Path::to_path_buf)) {
        places.push(folder.join(NAME));
        places.push(folder.join("../lib").join(NAME));
    }
    places.push(PathBuf::from(NAME));
    places
}

/// Loads the first of these files that is the library; nothing happens if one is loaded already.
pub fn load_from<P: AsRef<Path>>(places: &[P]) -> Result<(), LoadError> {
    if FUNCTIONS.get().is_some() {
        return Ok(());
    }
    let mut text = "Weir's library was not found; looked at:".to_string();
    let mut is_other_version = false;
    for place in places.iter().map(AsRef::as_ref) {
        match open(place) {
            Ok(functions) => {
                let _ = FUNCTIONS.set(functions); // another thread may have been first, with the same library
                return Ok(());
            }
            Err((why, other)) => {
                text += &format!("\n  {}: {why}", place.display());
                is_other_version |= other;
            }
        }
    }
    Err(LoadError { text, is_other_version })
}

/// What the loader says about its latest failure on this thread.
fn reason() -> String {
    // SAFETY: the text is valid until the next call of the loader on this thread.
    let text = unsafe { dlerror() };
    if text.is_null() {
        return "the loader gives no reason".to_string();
    }
    // SAFETY: a text ends with NUL.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// The functions in this file, or why not, and whether it is because of the version.
fn open(place: &Path) -> Result<Functions, (String, bool)> {
    let name =
        CString::new(place.as_os_str().as_bytes()).map_err(|_| ("a NUL inside of its name".to_string(), false))?;
    // SAFETY: the text ends with NUL. Code that runs when the library is loaded is Weir's.
    let library = unsafe { dlopen(name.as_ptr(), RTLD_NOW) };
    if library.is_null() {
        return Err((reason(), false));
    }
    let find = |name: &CStr| {
        // SAFETY: the library is open.
        let symbol = unsafe { dlsym(library, name.as_ptr()) };
        if symbol.is_null() {
            return Err(reason());
        }
        Ok(symbol)
    };
    let checked = find(c"weir_version").map_err(|why| (why, false)).and_then(|version| {
        // SAFETY: that is what the name means in every version.
        let version = unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> u32>(version)() };
        match other_version(version) {
            Some(why) => Err((why, true)),
            // SAFETY: the library's version says what its functions are.
            None => unsafe { Functions::find(find) }.map_err(|why| (why, true)),
        }
    });
    if checked.is_err() {
        // SAFETY: nothing of it is used any more.
        unsafe { dlclose(library) };
    }
    checked
}
