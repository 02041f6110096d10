//! The feature dlopen: which places are looked at, and what is said of each. In one test, as a process loads once.
#![cfg(feature = "dlopen")]
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_sys::*;

/// A library that says it is of this version, and has nothing else.
fn library(name: &str, version: u32) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, library) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
    std::fs::write(&source, format!("unsigned weir_version(void) {{ return {version}u; }}\n")).unwrap();
    let compiler = std::env::var("CC").unwrap_or("cc".into());
    let compiled = Command::new(compiler).args(["-shared", "-fPIC"]).arg(&source).arg("-o").arg(&library).status();
    assert!(compiled.expect("a C compiler").success());
    library
}

#[test]
fn the_first_library_that_fits_is_taken_and_others_are_explained() {
    let other_major = library("other_major", 2 << 16 | 3 << 8 | 4);
    let older = library("older", WEIR_VERSION_MAJOR << 16);
    let lacking = library("lacking", WEIR_VERSION_MAJOR << 16 | WEIR_VERSION_MINOR << 8);
    let not_there = Path::new("/nowhere/libweir.so.1");
    let version = env!("CARGO_PKG_VERSION");

    let error = load_from(&[&other_major]).unwrap_err();
    assert!(error.is_other_version);
    assert!(error.text.contains("the library is Weir 2.3.4"), "{error}");
    assert!(error.text.contains(&format!("for Weir {version}")), "{error}");

    let error = load_from(&[&older]).unwrap_err();
    assert!(error.is_other_version && error.text.contains("the library is Weir 1.0.0"), "{error}");

    let error = load_from(&[&lacking]).unwrap_err();
    assert!(error.text.contains("undefined symbol: weir_"), "{error}");

    let error = load_from(&[not_there, Path::new("/nor/here.so")]).unwrap_err();
    assert!(!error.is_other_version);
    assert!(error.text.contains("/nowhere/libweir.so.1: ") && error.text.contains("/nor/here.so: "), "{error}");
    assert!(error.text.contains("No such file"), "{error}");

    let error = load_from(&[Path::new("a\0b")]).unwrap_err();
    assert!(error.text.contains("NUL"), "{error}");

    // The places of load() when nothing is said, in a process of its own, as this one is to load the real one.
    if std::env::var_os("WEIR_TEST_CHILD").is_some() {
        println!("{}", load().unwrap_err());
        return;
    }
    let this = std::env::current_exe().unwrap();
    let said = Command::new(&this)
        .args(["--nocapture", "the_first_library"])
        .env("WEIR_TEST_CHILD", "1")
        .env("WEIR_LIBRARY", "/named/libweir.so")
        .env("WEIR_DIR", "/prefix")
        .env_remove("LD_LIBRARY_PATH")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    let beside = this.parent().unwrap().display().to_string();
    for place in [
        "/named/libweir.so: ",
        "/prefix/lib/libweir.so.1: ",
        &format!("{beside}/libweir.so.1: "),
        &format!("{beside}/../lib/libweir.so.1: "),
        "\n  libweir.so.1: ",
    ] {
        assert!(said.contains(place), "{place} in {said}");
    }

    // Places that do not fit are passed over, and nothing of the failures is left.
    let real = PathBuf::from(std::env::var_os("WEIR_DIR").expect("WEIR_DIR")).join("lib/libweir.so.1");
    load_from(&[not_there, &other_major, &real]).unwrap();
    load_from(&[not_there]).unwrap();
    assert_eq!(unsafe { weir_version() } >> 16, WEIR_VERSION_MAJOR);
}
