//! Tests of the declarations against the headers: layouts and numbers as the C compiler has them, and the version.
use super::*;
use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

/// The folder with weir/weir.h: of the sources, else of the library that the crate was built with.
fn include_folder() -> PathBuf {
    let sources = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../include"));
    if sources.join("weir/weir.h").exists() {
        return sources;
    }
    PathBuf::from(std::env::var_os("WEIR_DIR").expect("WEIR_DIR")).join("include")
}

/// What a program in C prints that asks the compiler for these expressions, one line each.
fn answers_of_c(expressions: &[String]) -> String {
    let mut code = "#include <stddef.h>\n#include <stdio.h>\n#include <weir/weir.h>\nint main(void) {\n".to_string();
    for expression in expressions {
        writeln!(code, "printf(\"%s %lld\\n\", \"{expression}\", (long long)({expression}));").unwrap();
    }
    let program = std::env::current_exe().unwrap().with_extension(format!("{}.layouts", std::process::id()));
    let source = program.with_extension("c");
    std::fs::write(&source, code + "return 0; }\n").unwrap();
    let compiler = std::env::var("CC").unwrap_or("cc".into());
    let compiled = Command::new(compiler).arg("-I").arg(include_folder()).arg(&source).arg("-o").arg(&program).status();
    assert!(compiled.expect("a C compiler").success());
    let printed = Command::new(&program).output().unwrap();
    let _ = (std::fs::remove_file(&source), std::fs::remove_file(&program));
    String::from_utf8(printed.stdout).unwrap()
}

#[test]
fn layouts_and_numbers_are_those_of_c() {
    let mut own: Vec<(String, i64)> = Vec::new();
    own.extend(CONSTANTS.iter().chain(VALUES).map(|(name, number)| (name.to_string(), *number)));
    for (name, size, fields) in LAYOUTS {
        own.push((format!("sizeof({name})"), *size as i64));
        for (field, offset, size) in *fields {
            let field = field.trim_start_matches("r#");
            own.push((format!("offsetof({name}, {field})"), *offset as i64));
            own.push((format!("sizeof((({name} *)0)->{field})"), *size as i64));
        }
    }
    let (expressions, _): (Vec<String>, Vec<i64>) = own.iter().cloned().unzip();
    let printed = answers_of_c(&expressions);
    let of_c: Vec<&str> = printed.lines().collect();
    let of_rust: Vec<String> = own.iter().map(|(expression, number)| format!("{expression} {number}")).collect();
    assert_eq!(of_c.len(), of_rust.len());
    for (c, rust) in of_c.iter().zip(&of_rust) {
        assert_eq!(c, rust);
    }
    assert!(LAYOUTS.len() > 20 && VALUES.len() > 80 && of_c.len() > 700, "{} lines", of_c.len());
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
