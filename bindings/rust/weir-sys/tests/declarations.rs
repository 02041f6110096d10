//! The declarations against the headers: layouts and numbers as the C compiler has them, and the version.
#![allow(non_camel_case_types)]
use std::path::PathBuf;
use std::process::Command;
use weir_sys::*;

macro_rules! number {
    ($lines:ident, $name:ident) => {
        $lines.push(format!("{} {}", stringify!($name), i64::from($name)))
    };
}
macro_rules! structure {
    ($lines:ident, $name:ident) => {
        $lines.push(format!("{} {}", stringify!($name), size_of::<$name>()))
    };
}
/// Size of a field, by a pointer to it that is never read.
fn size_of_field<S, F>(_: impl Fn(*const S) -> *const F) -> usize {
    size_of::<F>()
}
macro_rules! field {
    ($lines:ident, $name:ident, $field:ident) => {{
        // SAFETY: never called.
        let size = size_of_field(|at: *const $name| unsafe { &raw const (*at).$field });
        let field = stringify!($field).trim_start_matches("r#");
        $lines.push(format!("{}.{} {} {}", stringify!($name), field, std::mem::offset_of!($name, $field), size));
    }};
}

include!("layout/layout.rs");

/// The folder with weir/weir.h: of the sources, else of the library that the crate was built with.
fn include_folder() -> PathBuf {
    let sources = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../include"));
    if sources.join("weir/weir.h").exists() {
        return sources;
    }
    PathBuf::from(std::env::var_os("WEIR_DIR").expect("WEIR_DIR")).join("include")
}

#[test]
fn layouts_and_numbers_are_those_of_c() {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("layout");
    let compiled = Command::new(std::env::var("CC").unwrap_or("cc".into()))
        .arg("-I")
        .arg(include_folder())
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/layout/layout.c"))
        .arg("-o")
        .arg(&program)
        .status()
        .expect("a C compiler");
    assert!(compiled.success());
    let printed = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let of_c: Vec<&str> = printed.lines().collect();
    let of_rust = layout();
    for (c, rust) in of_c.iter().zip(&of_rust) {
        assert_eq!(c, rust);
    }
    assert_eq!(of_c.len(), of_rust.len());
    assert!(of_c.len() > 400, "{} lines", of_c.len());
}

#[test]
fn crates_have_the_version_of_the_library() {
    let header = format!("{WEIR_VERSION_MAJOR}.{WEIR_VERSION_MINOR}.{WEIR_VERSION_PATCH}");
    assert_eq!(env!("CARGO_PKG_VERSION"), header);
    let text = std::fs::read_to_string(include_folder().join("weir/base.h")).unwrap();
    for (name, number) in [("MAJOR", WEIR_VERSION_MAJOR), ("MINOR", WEIR_VERSION_MINOR), ("PATCH", WEIR_VERSION_PATCH)]
    {
        assert!(text.contains(&format!("#define WEIR_VERSION_{name} {number} ")), "{name}");
    }
}

#[test]
fn the_library_is_of_this_version() {
    load().unwrap();
    assert_eq!(unsafe { weir_version() } >> 8, WEIR_VERSION_MAJOR << 8 | WEIR_VERSION_MINOR);
}

#[test]
fn enums_print_their_names() {
    assert_eq!(format!("{:?}", weir_status_code::BUDGET), "BUDGET");
    assert_eq!(format!("{:?}", weir_stop_reason(77)), "weir_stop_reason(77)");
    assert!(weir_token_flag_bits(3).contains(weir_token_flag_bits::BYTE));
    assert!(!weir_token_flag_bits(1).contains(weir_token_flag_bits::BYTE));
}

#[test]
fn defaults_are_zero_bytes_with_their_size() {
    let options = weir_session_options::default();
    assert_eq!(options.struct_size as usize, size_of::<weir_session_options>());
    assert!(options.policy.is_null() && options.context_tokens == 0);
}
