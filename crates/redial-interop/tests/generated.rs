//! Goal: a proto file that changed without its code is noticed where the generator is not built.
//! Method: the code names the fingerprint of the file that it was made from. Whether it is what the
//! generator gives is a step of `cargo xtask test --long`.

/// As `checks/codegen` computes it.
fn fingerprint(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}

fn check(proto: &[u8], code: &str) {
    let head = code.lines().next().unwrap();
    let expected = format!("({:016x})", fingerprint(proto));
    assert!(head.contains(&expected), "run `cargo xtask generate`: {head} lacks {expected}");
}

#[test]
fn interop_generated_code_matches_the_proto_files() {
    check(include_bytes!("../proto/testing.proto"), include_str!("../src/generated/testing.rs"));
    check(include_bytes!("../proto/orca.proto"), include_str!("../src/generated/orca.rs"));
}
