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

    // The places of load(), in processes of their own, as this one is to load the real library. Who names one means
    // that one: another that might be there is not taken in its stead.
    if std::env::var_os("WEIR_TEST_CHILD").is_some() {
        println!("{}\nend", load().unwrap_err());
        return;
    }
    let this = std::env::current_exe().unwrap();
    let beside = this.parent().unwrap().display().to_string();
    let usual = [format!("{beside}/libweir.so.1"), format!("{beside}/../lib/libweir.so.1"), "libweir.so.1".to_string()];
    let prefix = "/prefix/lib/libweir.so.1".to_string();
    for (file, folder, places) in [
        ("/named/libweir.so", "/prefix", &["/named/libweir.so".to_string()][..]),
        ("/named/libweir.so", "", &["/named/libweir.so".to_string()]),
        ("", "/prefix", &[prefix]),
        ("", "", &usual),
    ] {
        let said = Command::new(&this)
            .args(["--nocapture", "the_first_library"])
            .env("WEIR_TEST_CHILD", "1")
            .env("WEIR_LIBRARY", file)
            .env("WEIR_DIR", folder)
            .env_remove("LD_LIBRARY_PATH")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        let list = said.split_once("looked at:\n").and_then(|(_, list)| list.split_once("\nend")).expect(&said).0;
        let looked: Vec<&str> = list.lines().map(|line| line.trim_start().split(": ").next().unwrap_or("")).collect();
        assert_eq!(looked, places, "WEIR_LIBRARY={file} WEIR_DIR={folder}");
    }

    // Places that do not fit are passed over, and nothing of the failures is left.
    let real = PathBuf::from(std::env::var_os("WEIR_DIR").expect("WEIR_DIR")).join("lib/libweir.so.1");
    load_from(&[not_there, &other_major, &real]).unwrap();
    load_from(&[not_there]).unwrap();
    assert_eq!(unsafe { weir_version() } >> 16, WEIR_VERSION_MAJOR);
}
