//! Finds the library: WEIR_DIR, the folder with include/ and lib/, or what pkg-config knows as `weir`.
//!
//! WEIR_STATIC=1 or the feature `static` take libweir.a instead of the shared library. With the feature `dlopen`
//! nothing is linked.
use std::path::Path;
use std::process::Command;
use std::{env, fs};

const MAJOR: &str = env!("CARGO_PKG_VERSION_MAJOR");
const MINOR: &str = env!("CARGO_PKG_VERSION_MINOR");

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for name in ["WEIR_DIR", "WEIR_STATIC", "PKG_CONFIG", "PKG_CONFIG_PATH", "PKG_CONFIG_LIBDIR"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    if env::var_os("CARGO_FEATURE_DLOPEN").is_some() {
        return;
    }
    let is_static = env::var_os("CARGO_FEATURE_STATIC").is_some() || env::var("WEIR_STATIC").is_ok_and(|v| v == "1");
    let found = match env::var("WEIR_DIR") {
        Ok(folder) if !folder.is_empty() => in_folder(Path::new(&folder), is_static),
        _ => by_pkg_config(is_static),
    };
    if let Err(why) = found {
        eprintln!("weir-sys: {why}");
        std::process::exit(1);
    }
}

/// The version that base.h of a folder names, such as 1.1.
fn version_of(header: &str) -> Option<String> {
    let number = |name: &str| {
        let line = header.lines().find(|line| line.starts_with(&format!("#define WEIR_VERSION_{name} ")))?;
        line.split_whitespace().nth(2)
    };
    Some(format!("{}.{}.{}", number("MAJOR")?, number("MINOR")?, number("PATCH")?))
}

/// These bindings need a library of their major version that is not older.
fn check_version(version: &str, place: &str) -> Result<(), String> {
    let mut numbers = version.trim().split('.').map(|number| number.parse::<u32>().ok());
    let (major, minor) = (numbers.next().flatten(), numbers.next().flatten());
    if major == MAJOR.parse().ok() && minor >= MINOR.parse().ok() {
        return Ok(());
    }
    Err(format!("{place} has Weir {}, and these bindings are for {MAJOR}.{MINOR} or a later {MAJOR}.x", version.trim()))
}

fn in_folder(folder: &Path, is_static: bool) -> Result<(), String> {
    let header = folder.join("include/weir/base.h");
    let text = fs::read_to_string(&header)
        .map_err(|error| format!("WEIR_DIR is the folder with include/ and lib/, but {}: {error}", header.display()))?;
    let version = version_of(&text).ok_or_else(|| format!("{} names no version", header.display()))?;
    check_version(&version, &format!("WEIR_DIR={}", folder.display()))?;
    let libraries = folder.join("lib");
    if is_static && !libraries.join("libweir.a").exists() {
        return Err(format!("there is no libweir.a in {}", libraries.display()));
    }
    println!("cargo:rustc-link-search=native={}", libraries.display());
    println!("cargo:rustc-link-lib={}weir", if is_static { "static=" } else { "" });
    if is_static && env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-link-lib=m"); // all else is in the archive, or in what Rust links
    }
    println!("cargo:root={}", folder.display());
    println!("cargo:libdir={}", libraries.display());
    Ok(())
}

fn pkg_config(arguments: &[&str]) -> Result<String, String> {
    let program = env::var("PKG_CONFIG").unwrap_or_else(|_| "pkg-config".to_string());
    let way_out = "Install Weir, or set WEIR_DIR to the folder with its include/ and lib/, PKG_CONFIG_PATH to that of \
                   weir.pc, or use the feature dlopen";
    let output = Command::new(&program)
        .args(arguments)
        .arg("weir")
        .output()
        .map_err(|error| format!("WEIR_DIR is not set, and {program} cannot be run: {error}. {way_out}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("WEIR_DIR is not set, and {program} does not know weir. {way_out}.\n{why}"));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

fn by_pkg_config(is_static: bool) -> Result<(), String> {
    check_version(&pkg_config(&["--modversion"])?, "pkg-config")?;
    let mut arguments = vec!["--libs"];
    if is_static {
        arguments.push("--static");
    }
    for word in pkg_config(&arguments)?.split_whitespace() {
        if let Some(folder) = word.strip_prefix("-L") {
            println!("cargo:rustc-link-search=native={folder}");
            println!("cargo:libdir={folder}");
        } else if let Some(name) = word.strip_prefix("-l") {
            let kind = if is_static && name == "weir" { "static=" } else { "" };
            println!("cargo:rustc-link-lib={kind}{name}");
        }
    }
    Ok(())
}
