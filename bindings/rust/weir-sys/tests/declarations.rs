//! The declarations: the library's version, names, defaults.
use weir_sys::*;

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
